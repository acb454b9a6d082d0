"""Hugging Face folders: shards, tokens and templates are those of `transformers`; what is not understood is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parent))
from checkpoints import ARCHITECTURES, PARAGRAPHS, copy_with, make_folder, write_gguf

from kernelwright.engine.capture import capture_workloads, read_captures
from kernelwright.engine.checkpoint import folder_name, model_bytes, model_digest, model_files, open_checkpoint
from kernelwright.engine.client import ServerProcess
from kernelwright.engine.gate_plan import plan_gate
from kernelwright.engine.gate_server import Arm, EngineOptions, start_engines
from kernelwright.engine.image_context import copy_model, render_dockerfile
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.mix import read_mix
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.engine.score import ForcedSequence
from kernelwright.engine.server import ServeOptions
from kernelwright.engine.text import load_text
from kernelwright.profiles.errors import BrokenInput, KernelwrightError
from kernelwright.sandbox.cage import open_cage

TEXTS = (
    *PARAGRAPHS, "", " ", "  two  spaces ", "Hello\n\n\tworld 1234567", "日本語 😀 é", "it's I'LL we've",
    "a<|start|>b<|end|>c",
)  # fmt: skip
CHAT = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "  What is 2 + 2?  "},
    {"role": "assistant", "content": "4"}, {"role": "user", "content": "Und 日本?"},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("folder") / "tiny-qwen3", "qwen3")


def logits(path: Path) -> torch.Tensor:
    rows = LLMEngine(path, num_pages=8).score([ForcedSequence(tuple(range(5, 60)))], "prefill")
    return torch.stack([row for _, _, row in rows])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_text_and_chat_are_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    from transformers import AutoTokenizer

    folder = make_folder(tmp_path / "model", architecture)
    theirs = AutoTokenizer.from_pretrained(folder)
    engine = LLMEngine(folder, num_pages=4)
    ours = engine.tokenizer
    front_end = load_text(open_checkpoint(folder).tokenizer)
    for text in TEXTS:
        ids = theirs.encode(text)
        assert ours.encode(text) == front_end.encode(text) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids)
    assert ours.render_chat(CHAT) == theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    expected = theirs.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert ours.encode_chat(CHAT) == front_end.render_chat(CHAT) == expected
    assert ours.eos_ids == (1, 4), "both ids of generation_config.json"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_gguf_file_cuts_text_as_the_folder_does(tmp_path: Path, architecture: str) -> None:
    folder = make_folder(tmp_path / "model", architecture)
    ours = LLMEngine(write_gguf(folder, tmp_path / "model.gguf"), num_pages=4).tokenizer
    theirs = LLMEngine(folder, num_pages=4).tokenizer
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
        ids = theirs.encode(text)
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids, skip_special=False)
    assert ours.encode_chat(CHAT) == theirs.encode_chat(CHAT) and ours.eos_ids == theirs.eos_ids


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_bytes_join_to_the_text(tmp_path: Path, architecture: str) -> None:
    tokenizer = LLMEngine(make_folder(tmp_path / "model", architecture), num_pages=4).tokenizer
    for text in (t for t in TEXTS if "<|" not in t):
        ids = [i for i in tokenizer.encode(text) if i != tokenizer.bos_id]
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text
    assert tokenizer.token_bytes(3) == b"<|start|>" and tokenizer.token_bytes(10**6) == b""


def test_a_template_file_goes_before_the_one_in_the_configuration(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "m")
    config = json.loads((tmp_path / "m/tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "inside"}]
    (tmp_path / "m/tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "m/chat_template.jinja").write_text("beside")
    assert LLMEngine(tmp_path / "m", num_pages=4).tokenizer.render_chat(CHAT) == "beside"
    (tmp_path / "m/chat_template.jinja").unlink()
    assert LLMEngine(tmp_path / "m", num_pages=4).tokenizer.render_chat(CHAT) == "inside"


def test_eos_ids_come_from_the_configuration_where_generation_has_none(folder: Path, tmp_path: Path) -> None:
    copy_with(folder, tmp_path / "m", eos_token_id=4)
    (tmp_path / "m/generation_config.json").unlink()
    assert LLMEngine(tmp_path / "m", num_pages=4).tokenizer.eos_ids == (4,)
    copy_with(tmp_path / "m", tmp_path / "n", eos_token_id=None)
    assert LLMEngine(tmp_path / "n", num_pages=4).tokenizer.eos_ids == (1,), "the tokenizer's eos_token"


def shard(folder: Path, target: Path) -> Path:
    """Copy a folder with its weights in several parts."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(folder, target)
    (target / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).save_pretrained(target, max_shard_size="200KB")
    assert len(list(target.glob("*.safetensors"))) > 1
    return target


def test_shards_are_one_model(folder: Path, tmp_path: Path) -> None:
    parts = shard(folder, tmp_path / "parts")
    assert torch.equal(logits(parts), logits(folder))
    assert model_bytes(parts) > model_bytes(folder) * 0.9


def test_a_folder_is_named_by_its_content(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy/README.md").write_text("not read")
    assert model_digest(tmp_path / "copy") == model_digest(folder)
    assert {path.name for path in model_files(folder)} >= {"config.json", "model.safetensors", "tokenizer.json"}
    raw = bytearray((tmp_path / "copy/model.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "copy/model.safetensors").write_bytes(raw)
    assert model_digest(tmp_path / "copy") != model_digest(folder)
    cached = tmp_path / "models--org--Nice-Model" / "snapshots" / "0123abc"
    cached.mkdir(parents=True)
    assert (folder_name(cached), folder_name(folder)) == ("Nice-Model", "tiny-qwen3")


@pytest.fixture
def linked(folder: Path, tmp_path: Path) -> Path:
    """The folder as Hugging Face's cache has it: links to files that lie elsewhere."""
    (tmp_path / "linked").mkdir()
    for path in folder.iterdir():
        (tmp_path / "linked" / path.name).symlink_to(path)
    return tmp_path / "linked"


def test_a_folder_is_served(linked: Path) -> None:
    options = ServeOptions(model=linked, port=0, threads=1, max_model_len=200)
    with ServerProcess.start(options) as server:
        server.wait_until_healthy(240)
        with server.client() as client:
            answer = client.chat(CHAT, max_tokens=8, temperature=0.0)
            assert answer["usage"]["prompt_tokens"] == len(LLMEngine(linked, num_pages=4).tokenizer.encode_chat(CHAT))
            assert answer["choices"][0]["finish_reason"] in ("length", "stop")
            assert client.kernels()["model_digest"] == model_digest(linked)


@pytest.mark.cage
def test_a_folder_is_served_from_a_cage(folder: Path, linked: Path, tmp_path: Path) -> None:
    for path in (folder, *folder.parents[:2], tmp_path, *folder.iterdir()):
        path.chmod(0o755)  # the cage's user is another; safetensors writes for its own only
    for name in ("pack", "cache"):
        (tmp_path / name).mkdir()
    arm = Arm(open_cage("bubblewrap"), linked, tmp_path / "pack", tmp_path / "cache", threads=1)
    with start_engines(arm, EngineOptions(patched=False)) as (engine,), engine.client() as client:
        assert client.kernels()["model_digest"] == model_digest(folder)
        assert client.complete("Hello", max_tokens=4)["choices"][0]["text"]
    library = plan_gate(linked, 1.0).library
    assert library is not None


def test_an_image_takes_a_folder_whole(linked: Path, tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    assert copy_model(linked, tmp_path / "context") == "model"
    assert model_digest(tmp_path / "context" / "model") == model_digest(linked)
    assert "COPY model /srv/model\n" in render_dockerfile("s", "base", {}, "model")


def test_workloads_are_captured_from_a_folder_with_windows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", "gemma3")
    whole = read_mix("chat")
    requests = [r.model_copy(update={"max_tokens": 6, "prompt": r.prompt[:40]}) for r in whole.requests[:4]]
    index = capture_workloads(folder, whole.model_copy(update={"requests": tuple(requests)}), tmp_path / "out", limit=1)
    captured = read_captures(index.parent)
    assert {name.split("_q4")[0] for name in captured if "_q4" in name} == {
        "norm_rope_cache", "decode_attention", "prefill_attention", "sliding_decode_attention",
        "sliding_prefill_attention",
    }  # fmt: skip
    assert {"rmsnorm_h64", "f32_gate_up_gelu_f96_h64"} <= set(captured) <= set(ModelSlots(folder).definitions())


def test_old_and_new_ways_to_say_rope_are_one(tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 64
    new = make_folder(tmp_path / "new", "llama", rope_parameters=scaling | {"rope_theta": 5e5})
    old = copy_with(new, tmp_path / "old", rope_parameters=None, rope_theta=5e5, rope_scaling=scaling)
    oldest = copy_with(
        new, tmp_path / "oldest", rope_parameters=None, rope_theta=5e5,
        rope_scaling={("type" if key == "rope_type" else key): value for key, value in scaling.items()},
    )  # fmt: skip
    assert open_checkpoint(old).config.rope == open_checkpoint(oldest).config.rope == open_checkpoint(new).config.rope
    gemma = make_folder(tmp_path / "gemma", "gemma3")
    plain = copy_with(
        gemma, tmp_path / "plain", rope_parameters=None, rope_theta=1e6, rope_local_base_freq=1e4, layer_types=None,
        rope_scaling={"rope_type": "linear", "factor": 8.0}, sliding_window_pattern=6,
    )  # fmt: skip
    config = open_checkpoint(plain).config
    assert (config.rope.scaling, config.rope.factor, config.rope.base) == ("linear", 8.0, 1e6)
    assert config.local_rope is not None and (config.local_rope.scaling, config.local_rope.base) == ("default", 1e4)
    assert config.windows == open_checkpoint(gemma).config.windows
    from transformers import AutoModelForCausalLM

    for path in (old, plain):
        reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        with torch.no_grad():
            assert (logits(path) - reference(torch.tensor([list(range(5, 60))])).logits[0]).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, r"unknown architecture \['MixtralForCausalLM'\].*Qwen3ForCausalLM"),
        ({"architectures": None}, "unknown architecture None"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, r"quantised \(gptq\).*GGUF"),
        ({"num_experts": 8}, "a mixture of experts"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "RoPE scaling 'yarn'.*llama3"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "factor is None"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is None"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differs by layer"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "a part of each head"),
        ({"partial_rotary_factor": 0.5}, "rotates whole heads"),
        ({"attention_bias": True}, "attention_bias = True is not supported"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0 is not supported"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu' where 'silu'"),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention"]}, "does not name 3 layers"),
        ({"num_hidden_layers": 4, "layer_types": None}, "lacks tensors: model.layers.3.*and 8 more"),
        ({"num_hidden_layers": 2, "layer_types": None}, "has unknown tensors: model.layers.2."),
        ({"num_hidden_layers": 2**30}, "claims 1073741824 layers"),
        ({"intermediate_size": 128}, "wrongly shaped tensors: model.layers.0.mlp.down_proj.weight"),
        ({"tie_word_embeddings": False}, "lacks tensors: lm_head.weight"),
        ({"num_key_value_heads": 3}, "impossible attention shape"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    ],
)
def test_what_is_not_understood_is_refused(folder: Path, tmp_path: Path, change: dict[str, Any], match: str) -> None:
    changed = copy_with(folder, tmp_path / "m", **change)
    with pytest.raises(BrokenInput, match=f"(?s){match}"):
        LLMEngine(changed, num_pages=4)
    with pytest.raises(BrokenInput, match=f"(?s){match}"):
        ModelSlots(changed, 64)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda m: (m / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda m: (m / "config.json").write_text("[]"), "holds no JSON object"),
        (lambda m: (m / "config.json").unlink(), "there is no .*config.json"),
        (lambda m: (m / "model.safetensors").unlink(), "neither model.safetensors nor"),
        (lambda m: cut(m / "model.safetensors"), "not a readable safetensors file"),
        (lambda m: (m / "model.safetensors").write_bytes(b""), "not a readable safetensors file"),
        (lambda m: (m / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
        (lambda m: (m / "tokenizer.json").write_text('{"model": 1}'), "tokenizer.json cannot be read"),
        (lambda m: (m / "tokenizer_config.json").write_text("x"), "tokenizer_config.json is not JSON"),
        (lambda m: (m / "generation_config.json").write_text('{"eos_token_id": "x"}'), "eos_token_id is 'x'"),
        (
            lambda m: rewrite(m / "model.safetensors", lambda t: t.update(extra=torch.ones(2))),
            "has unknown tensors: extra",
        ),
        (
            lambda m: rewrite(m / "model.safetensors", lambda t: t.pop("model.norm.weight")),
            "lacks tensors: model.norm.weight",
        ),
        (
            lambda m: rewrite(
                m / "model.safetensors", lambda t: t.update({"model.norm.weight": torch.ones(64, dtype=torch.int32)})
            ),
            "dtype torch.int32, which this engine does not read",
        ),
    ],
)  # fmt: skip
def test_broken_folders_are_refused(folder: Path, tmp_path: Path, damage: Callable[[Path], Any], match: str) -> None:
    shutil.copytree(folder, tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(BrokenInput, match=match):
        LLMEngine(tmp_path / "m", num_pages=4)


def test_broken_shards_are_refused(folder: Path, tmp_path: Path) -> None:
    parts = shard(folder, tmp_path / "parts")
    index, first = parts / "model.safetensors.index.json", sorted(parts.glob("*.safetensors"))[0]
    whole = index.read_text()
    said = json.loads(whole)
    for weight_map, match in (
        ({**said["weight_map"], "ghost": first.name}, "ghost is not in the part"),
        ({**said["weight_map"], "x": "../up.safetensors"}, "names files outside its folder"),
        ({}, "has no weight_map"),
    ):
        index.write_text(json.dumps({**said, "weight_map": weight_map}))
        with pytest.raises(BrokenInput, match=match):
            LLMEngine(parts, num_pages=4)
    index.write_text(whole)
    shutil.copy(first, parts / "again.safetensors")
    index.write_text(json.dumps({**said, "weight_map": {**said["weight_map"], "y": "again.safetensors"}}))
    with pytest.raises(BrokenInput, match="in two parts"):
        LLMEngine(parts, num_pages=4)
    index.write_text(whole)
    first.unlink()
    with pytest.raises(BrokenInput, match=f"lacks {first.name}, a part of its weights"):
        LLMEngine(parts, num_pages=4)


def test_a_tokenizer_that_adds_more_than_a_leading_token_is_refused(folder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, processors

    shutil.copytree(folder, tmp_path / "m")
    backend = Tokenizer.from_file(str(tmp_path / "m/tokenizer.json"))
    backend.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    backend.save(str(tmp_path / "m/tokenizer.json"))
    with pytest.raises(BrokenInput, match="adds tokens around a text"):
        LLMEngine(tmp_path / "m", num_pages=4)


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_byte_of_the_configuration_is_refused_or_harmless(folder: Path, tmp_path: Path, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shutil.copytree(folder, tmp_path / "m")
    content = bytearray((tmp_path / "m/config.json").read_bytes())
    content[int(torch.randint(0, len(content), (), generator=generator))] = int(
        torch.randint(0, 256, (), generator=generator)
    )
    (tmp_path / "m/config.json").write_bytes(content)
    try:
        LLMEngine(tmp_path / "m", num_pages=2)
    except KernelwrightError as error:
        assert error.message


def test_old_files_may_hold_frequencies_and_a_head_that_is_tied(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "m")
    rewrite(
        tmp_path / "m/model.safetensors",
        lambda t: t.update(
            {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16), "lm_head.weight": torch.zeros(3)}
        ),
    )
    assert torch.equal(logits(tmp_path / "m"), logits(folder))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"gemma3.final_logit_softcapping": 30.0}, "unknown hyper-parameters final_logit_softcapping"),
        ({"gemma3.attn_logit_softcapping": 50.0}, "unknown hyper-parameters attn_logit_softcapping"),
        ({"gemma3.attention.sliding_window_pattern": [True, False]}, "pattern has 2 entries for 7 layers"),
        ({"tokenizer.ggml.scores": None}, "no score for each piece"),
    ],
)
def test_gguf_files_are_refused_where_they_are_not_understood(
    tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    file = write_gguf(make_folder(tmp_path / "m", "gemma3"), tmp_path / "m.gguf", metadata=change)
    with pytest.raises(BrokenInput, match=match):
        LLMEngine(file, num_pages=4)


def test_a_gguf_file_may_state_its_windows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m", "gemma3")
    pattern = [True, False, True, True, False, True, True]
    key = "gemma3.attention.sliding_window_pattern"
    listed = open_checkpoint(write_gguf(folder, tmp_path / "a.gguf", {key: pattern})).config.windows
    assert listed == tuple(21 if local else None for local in pattern)
    assert open_checkpoint(write_gguf(folder, tmp_path / "b.gguf", {key: 2})).config.windows[:3] == (21, None, 21)
    none = open_checkpoint(write_gguf(folder, tmp_path / "c.gguf", {"gemma3.attention.sliding_window": None})).config
    assert none.windows == ()
