"""Shared by all tests: marks that skip with a reason, a state folder of our own, and a tiny random model.

`make_tiny_model(path, ...)` writes a complete GGUF file (Llama shape, byte-level vocabulary, chat template) of a few
hundred kilobytes, so that everything above the weights is tested without downloading any.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 64, 96, 2, 2, 1, 32, 256


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and not item.config.getoption("--slow"):
        pytest.skip("takes minutes: run with --slow")
    for mark, missing in {"gpu": missing_gpu, "docker": missing_docker, "cage": missing_cage}.items():
        if item.get_closest_marker(mark) and (reason := missing()):
            pytest.skip(reason)
    if item.get_closest_marker("weights") and (reason := missing_weights()):
        pytest.skip(reason)


@functools.cache
def missing_gpu() -> str:
    return "" if shutil.which("nvidia-smi") else "no NVIDIA GPU on this machine"


@functools.cache
def missing_docker() -> str:
    if "DOCKER_HOST" in os.environ or Path("/var/run/docker.sock").exists() or shutil.which("dockerd"):
        return ""
    return "no Docker daemon and no dockerd to start one with"


@functools.cache
def missing_cage() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return f"bubblewrap cannot build a cage here: {done.stderr.strip()}" if done.returncode else ""


@functools.cache
def missing_weights() -> str:
    from kernelwright.engine.weights import find_default_model
    from kernelwright.profiles.errors import KernelwrightError

    try:
        find_default_model()
    except KernelwrightError as error:
        return f"no SmolLM2 weights: {error.message}"
    return ""


@pytest.fixture(autouse=True, scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Sessions of the tests go to a folder of their own, never to the user's."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def daemon_of_our_own() -> Iterator[str]:
    """The address of a Docker daemon of our own, which touches neither the network nor another daemon's data."""
    program = shutil.which("dockerd")
    if program is None or os.geteuid() != 0:
        pytest.skip("starting a Docker daemon needs root and dockerd")
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-docker-", dir="/tmp"))
    folder.chmod(0o711)  # a test lets an ordinary user talk to it
    host = f"unix://{folder}/d.sock"
    command = [
        program, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "-H", host, "--bridge=none",
        "--pidfile", f"{folder}/pid", "--iptables=false", "--ip6tables=false",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(120):
                if "API listen on" in (folder / "log").read_text():
                    break
                if process.poll() is not None:
                    pytest.skip(f"dockerd cannot run here: {(folder / 'log').read_text()[-300:]}")
                time.sleep(0.25)
            yield host
        finally:
            process.terminate()
            process.wait(60)
            for mount in (folder / "data").glob("overlay2/*/merged"):
                subprocess.run(["umount", str(mount)], capture_output=True)
            subprocess.run(["umount", f"{folder}/data"], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(daemon_of_our_own: str) -> Iterator[str]:
    """That daemon, as the one which DOCKER_HOST names while a module's tests run; use with the mark `docker`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", daemon_of_our_own)
        yield daemon_of_our_own


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real weights; use with the mark `weights`."""
    from kernelwright.engine.weights import find_default_model

    return find_default_model()


@pytest.fixture(scope="session")
def make_tiny_model() -> Callable[..., Path]:
    return write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama with Q4_1 matrices and a tied Q8_0 head; 300 tokens, context 256."""
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def write_tiny_model(
    path: Path, kind: str = "Q4_1", head: str = "Q8_0", seed: int = 0, metadata: dict[str, Any] | None = None
) -> Path:
    """Write a tiny model; `kind` is the type of its matrices, `metadata` overrides keys (None leaves a key out)."""
    import gguf

    rng = np.random.default_rng(seed)
    tokens, kinds, merges = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    keys: dict[str, Any] = {
        "general.name": "Tiny", "llama.block_count": LAYERS, "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS, "llama.attention.key_length": HEAD_DIM,
        "llama.attention.value_length": HEAD_DIM, "llama.rope.dimension_count": HEAD_DIM,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip
    for key, value in {**keys, **(metadata or {})}.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        if value is not None and key != "general.architecture":
            add.get(type(value), writer.add_array)(key, value)
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"attn_q": (q, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN), "attn_output": (HIDDEN, q)}
    shapes |= {"ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}
    # small embeddings: with large ones a tied head would just repeat the last token, and every test would pass
    add_tensor(writer, "token_embd.weight", 0.1 * rng.normal(size=(len(tokens), HIDDEN)), head)
    add_tensor(writer, "output_norm.weight", 1 + 0.1 * rng.normal(size=HIDDEN), "F32")
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            add_tensor(writer, f"blk.{layer}.{name}.weight", 1 + 0.1 * rng.normal(size=HIDDEN), "F32")
        for name, shape in shapes.items():
            add_tensor(writer, f"blk.{layer}.{name}.weight", rng.normal(size=shape) * shape[1] ** -0.5, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tensor(writer: Any, name: str, values: np.ndarray, kind: str) -> None:
    """Add a float tensor to a GGUF writer, quantised by ggml's own rules as `kind`."""
    from gguf import GGMLQuantizationType, quants

    raw = GGMLQuantizationType[kind]
    writer.add_tensor(name, quants.quantize(values.astype(np.float32), raw), raw_dtype=raw)


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Return tokens, their types and merges: control tokens, the 256 bytes, and a few short words."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    letters = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    pairs = ["t h", "th e", "h e", "i n", "a n", "an d", "e r", "o n", "Ġ t", "Ġt he", "Ġ a", "r e", "o u"]
    merged = [pair.replace(" ", "") for pair in pairs]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, *merged]
    tokens += [f"<unused{index}>" for index in range(300 - len(tokens))]
    return tokens, [3, 3, 3] + [1] * (len(tokens) - 3), pairs
