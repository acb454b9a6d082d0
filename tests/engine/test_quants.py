"""A model in each block type is served from its raw blocks and says what its floats say, by incumbent or kernel."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelwright.engine import decoder
from kernelwright.engine.dispatch import LoadedKernel
from kernelwright.engine.gguf import read_gguf
from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.engine.score import ForcedSequence
from kernelwright.kernels.build import build_cached
from kernelwright.kernels.families.rendering import LANES
from kernelwright.kernels.families.table import family_of
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.ops.weights import QUANTISED

sys.path.append(str(Path(__file__).parent))
from quant_models import Tensors, as_floats, draw_tensors, write_model

Make = Callable[..., Path]
TOKENS = torch.randint(3, 300, (60,), generator=torch.Generator().manual_seed(5)).tolist()
SEQUENCES = [
    ForcedSequence(tuple(TOKENS[:4]), tuple(TOKENS[4:20])),
    ForcedSequence(tuple(TOKENS[20:27]), tuple(TOKENS[27:36])),
    ForcedSequence(tuple(TOKENS[36:37]), tuple(TOKENS[37:60])),
]
"""Steps of three, two and one token."""
ROUNDING = 4e-6
"""Most that adding up in another order may move logits, of the largest logit; a third of it was seen."""
native = pytest.mark.skipif(
    shutil.which("g++") is None or detect_isa() not in LANES, reason="no family can be built for this processor"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def build_kernels(model: Path, cache: Path, regions: bool) -> list[LoadedKernel]:
    """Return a kernel at its family's default point for every slot that has weights, with regions or without."""
    kernels = []
    for definition in ModelSlots(model).definitions().values():
        family = family_of(definition)
        wanted = ("_mlp_block",) if regions else ("_linear", "_gate_up_silu")
        if family is None or not definition.op_type.endswith(wanted):
            continue
        candidate = family.render(definition, family.default_point(), detect_isa())
        built = build_cached(candidate, cache)
        assert built.status == "PASSED", built.log
        kernels.append(LoadedKernel(candidate, built.binary))
    return kernels


def decode(engine: LLMEngine) -> torch.Tensor:
    return torch.stack([logits for _, _, logits in engine.score(SEQUENCES, "decode")])


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("kind", QUANTISED)
def test_raw_blocks_say_what_the_package_says_they_hold(kind: str, make_tiny_model: Make, tmp_path: Path) -> None:
    tensors = draw_tensors(kind)
    model = write_model(tmp_path / "raw.gguf", tensors, make_tiny_model)
    floats = write_model(tmp_path / "floats.gguf", as_floats(tensors), make_tiny_model)
    engine = LLMEngine(model, num_pages=8)
    used = {d.op_type for layer in range(3) for d in engine.dispatch.weights.definitions(layer).values()}
    assert {f"{kind}_linear", f"{kind}_gate_up_silu", f"{kind}_mlp_block"} <= used
    assert not any(op_type.startswith("f32") for op_type in used)
    found, expected = decode(engine), decode(LLMEngine(floats, num_pages=8))
    assert torch.equal(found, expected) and len(found.argmax(-1).unique()) > 3


@native
@pytest.mark.parametrize("kind", ["q4_0", "q4_k", "q6_k", "bf16", "q8_0"])
@pytest.mark.parametrize("regions", [False, True])
def test_kernels_over_raw_blocks_say_the_same(
    kind: str, regions: bool, make_tiny_model: Make, tmp_path: Path, cache: Path
) -> None:
    tensors = draw_tensors(kind)
    model = write_model(tmp_path / "raw.gguf", tensors, make_tiny_model)
    kernels = build_kernels(model, cache, regions)
    engine = LLMEngine(model, kernels, num_pages=8)
    expected = decode(LLMEngine(write_model(tmp_path / "floats.gguf", as_floats(tensors), make_tiny_model)))
    found = distance(decode(engine), expected)
    assert 0 < found < ROUNDING
    states = [state for state in engine.kernels() if state.candidate and state.hits]
    assert len(states) == len(kernels) == (1 if regions else 5)
    if not regions:
        assert not any(slot in ("qkv", "down", "head") for _, slot, digest in engine.dispatch._bound if not digest)


@native
def test_a_step_of_twelve_sequences_is_served_by_kernels(make_tiny_model: Make, tmp_path: Path, cache: Path) -> None:
    tensors = draw_tensors("q4_k")
    model = write_model(tmp_path / "raw.gguf", tensors, make_tiny_model)
    engine = LLMEngine(model, build_kernels(model, cache, regions=False), num_pages=16)
    floats = LLMEngine(write_model(tmp_path / "floats.gguf", as_floats(tensors), make_tiny_model), num_pages=16)
    twelve = [ForcedSequence((first, 7), (TOKENS[first], 9)) for first in range(3, 15)]
    found, expected = (torch.stack([row for *_, row in e.score(twelve, "decode")]) for e in (engine, floats))
    assert 0 < distance(found, expected) < ROUNDING
    assert all(state.incumbent_calls == 0 for state in engine.kernels() if state.candidate)


def flip_nibble(rows: np.ndarray, kind: str) -> None:
    rows[7, QUANTISED[kind].block_bytes // 2] ^= 0x20


def flip_scale(rows: np.ndarray, kind: str) -> None:
    rows[7, {"q4_0": 1, "q4_k": 5, "q6_k": 193, "bf16": 1, "q8_0": 1}[kind]] ^= 0x04


@native
@pytest.mark.parametrize("kind", ["q4_0", "q4_k", "q6_k", "bf16", "q8_0"])
@pytest.mark.parametrize("flip", [flip_nibble, flip_scale])
def test_one_flipped_bit_of_one_row_is_seen(
    kind: str, flip: Callable[[np.ndarray, str], None], make_tiny_model: Make, tmp_path: Path, cache: Path
) -> None:
    tensors = draw_tensors(kind)
    expected = decode(LLMEngine(write_model(tmp_path / "floats.gguf", as_floats(tensors), make_tiny_model)))
    broken: Tensors = {name: (of, rows.copy()) for name, (of, rows) in tensors.items()}
    flip(broken["blk.1.ffn_up.weight"][1], kind)
    model = write_model(tmp_path / "raw.gguf", broken, make_tiny_model)
    found = distance(decode(LLMEngine(model, build_kernels(model, cache, regions=False))), expected)
    assert found > 10 * ROUNDING


@native
@pytest.mark.parametrize("kind", ["q4_0", "q4_k", "q6_k", "bf16", "q8_0"])
def test_q_and_k_left_in_the_files_order_are_seen(
    kind: str, make_tiny_model: Make, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = draw_tensors(kind)
    model = write_model(tmp_path / "raw.gguf", tensors, make_tiny_model)
    expected = decode(LLMEngine(write_model(tmp_path / "floats.gguf", as_floats(tensors), make_tiny_model)))
    kernels = build_kernels(model, cache, regions=False)
    monkeypatch.setattr(decoder, "unpermute", lambda weight, heads: weight)
    assert distance(decode(LLMEngine(model, kernels)), expected) > 1e-2


def test_a_slot_of_mixed_kinds_becomes_floats_and_the_others_stay_raw(make_tiny_model: Make, tmp_path: Path) -> None:
    """As in Q4_K_M files: v and the down projection in Q6_K beside Q4_K."""
    tensors = draw_tensors("q4_k", {"attn_v": "q6_k", "ffn_down": "q6_k", "token_embd": "q6_k"})
    model = write_model(tmp_path / "raw.gguf", tensors, make_tiny_model)
    engine = LLMEngine(model, num_pages=8)
    first, last = (engine.dispatch.weights.definitions(layer) for layer in (0, 2))
    kinds = {slot: first[slot].op_type for slot in ("qkv", "attention_out", "gate_up", "down")}
    assert kinds == {
        "qkv": "f32_linear", "attention_out": "q4_k_linear", "gate_up": "q4_k_gate_up_silu", "down": "q6_k_linear"
    }  # fmt: skip
    assert last["head"].op_type == "q6_k_linear" and "mlp_block" not in first
    floats = write_model(tmp_path / "floats.gguf", as_floats(tensors), make_tiny_model)
    assert torch.equal(decode(engine), decode(LLMEngine(floats, num_pages=8)))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
@pytest.mark.parametrize("kind", QUANTISED)
def test_reading_copies_no_block(kind: str, make_tiny_model: Make, tmp_path: Path) -> None:
    tensors = draw_tensors(kind)
    path = write_model(tmp_path / "raw.gguf", tensors, make_tiny_model)
    file = read_gguf(path)
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    mapped = [tuple(int(end, 16) for end in line[0].split("-")) for line in lines]
    for name, (of, rows) in tensors.items():
        weight = file.tensors[name]
        assert weight.kind == of and weight.raw.numpy().tobytes() == rows.tobytes()
        assert any(low <= weight.raw.data_ptr() < high for low, high in mapped)
