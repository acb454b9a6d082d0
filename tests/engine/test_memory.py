"""What the engine says of its memory is what is there."""

from __future__ import annotations

import gc
import importlib.util
import mmap
import sys
import weakref
from pathlib import Path

import pytest

from kernelwright.engine.llm import LLMEngine
from kernelwright.engine.memory import describe, mapped_file, measure_memory, resident_bytes
from kernelwright.engine.sequence import SamplingParams

_spec = importlib.util.spec_from_file_location("planting", Path(__file__).with_name("planting.py"))
assert _spec is not None and _spec.loader is not None
planting = importlib.util.module_from_spec(_spec)
sys.modules["planting"] = planting
_spec.loader.exec_module(planting)

QKV, DOWN = "q4_1_linear_n128_k64", "q4_1_linear_n64_k96"
KEEPS_RAW = "\ndef run(x, w):\n    return (F.linear(x, decode_q4_1(w, x.dtype)),)\n"
"""Without `prepare` a kernel is given the raw weights at every call, so that it holds what was joined for it."""


def serve(engine: LLMEngine) -> None:
    engine.add_request("a", list(range(20, 60)), SamplingParams(max_tokens=2, ignore_eos=True))
    while engine.has_work():
        engine.step()


def test_incumbents_hold_what_they_dequantised_and_nothing_before_they_are_called(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=16)
    before = measure_memory(engine.dispatch, tiny_model)
    assert (before.packed_bytes, before.dequantized_bytes) == (0, 0)
    engine.check_kernels()
    serve(engine)
    after = measure_memory(engine.dispatch, tiny_model)
    matrices = 2 * (128 * 64 + 64 * 64 + 2 * 96 * 64 + 64 * 96) * 4 + 300 * 64 * 4
    assert after.dequantized_bytes == after.dequantized_all_bytes == matrices
    assert after.kv_cache_bytes == 2 * 2 * 16 * 16 * 32 * 4


def test_raw_weights_that_were_joined_are_released_unless_a_kernel_keeps_them(tiny_model: Path) -> None:
    packs = planting.kernels_of(tiny_model, [QKV])
    dense = LLMEngine(tiny_model, packs, num_pages=16)
    assert measure_memory(dense.dispatch, tiny_model).packed_bytes == 2 * 128 * 64 * 4
    candidate = packs[0].candidate.model_dump() | {"prepare": None, "packed": ()}
    candidate["sources"][0]["content"] += KEEPS_RAW
    raw = type(packs[0])(type(packs[0].candidate)(**candidate))
    keeps = LLMEngine(tiny_model, [raw], num_pages=16)
    assert keeps.check_kernels() == []
    assert measure_memory(keeps.dispatch, tiny_model).packed_bytes == 2 * 128 * (64 // 32 * 20)


def test_what_is_a_view_of_the_file_is_nobodys_copy(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, planting.kernels_of(tiny_model, ["add_rmsnorm_h64"]), num_pages=16)
    assert measure_memory(engine.dispatch, tiny_model).packed_bytes == 0
    own = engine.dispatch.weights.slot(0, "attention_norm")["weight"]
    assert engine.dispatch.weights.is_own(own) and not engine.dispatch.weights.is_own(own.clone())


def test_the_mapping_is_found_and_an_engine_that_is_dropped_is_freed(tiny_model: Path) -> None:
    engine = LLMEngine(tiny_model, num_pages=16)
    mapped, resident = mapped_file(tiny_model)
    assert mapped >= tiny_model.stat().st_size and 0 < resident <= mapped
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None


def test_resident_memory_is_counted(tiny_model: Path) -> None:
    size = 80 << 20
    before = resident_bytes()
    with mmap.mmap(-1, size) as held:  # pages of their own: an allocator may give out what it has kept
        held[:] = b"1" * size
        assert resident_bytes() - before > 0.9 * size


def test_it_is_told_in_one_line(tiny_model: Path) -> None:
    line = describe(measure_memory(LLMEngine(tiny_model, num_pages=16).dispatch, tiny_model).model_dump())
    assert "\n" not in line and "packed for kernels" in line and "dequantised for incumbents" in line


@pytest.mark.weights
def test_the_real_weights_are_mapped_and_read_where_they_are(smollm2: Path) -> None:
    engine = LLMEngine(smollm2, num_pages=16)
    memory = measure_memory(engine.dispatch, smollm2)
    assert memory.mapped_bytes >= smollm2.stat().st_size and memory.dequantized_bytes == 0
    assert 5e8 < memory.dequantized_all_bytes < 6e8
