"""Block decoding against the reader of the format's own package."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.kernels.blocks import decode_q4_1, decode_q8_0, row_bytes, source_with

HALF = st.floats(width=16, allow_nan=False, allow_infinity=False)


def _rows(blocks: list[bytes], per_row: int) -> torch.Tensor:
    raw = np.frombuffer(b"".join(blocks), dtype=np.int8).reshape(-1, per_row * len(blocks[0]))
    return torch.from_numpy(raw.copy())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HALF, HALF, st.binary(min_size=16, max_size=16)), min_size=2, max_size=2))
def test_q4_1_decodes_as_gguf_does(drawn: list[tuple[float, float, bytes]]) -> None:
    rows = _rows([np.array([d, m], np.float16).tobytes() + q for d, m, q in drawn], 2)
    want = dequantize(rows.numpy().view(np.uint8), GGMLQuantizationType.Q4_1)
    np.testing.assert_array_equal(decode_q4_1(rows, torch.float32).numpy(), want)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HALF, st.binary(min_size=32, max_size=32)), min_size=3, max_size=3))
def test_q8_0_decodes_as_gguf_does(drawn: list[tuple[float, bytes]]) -> None:
    rows = _rows([np.array([d], np.float16).tobytes() + q for d, q in drawn], 1)
    want = dequantize(rows.numpy().view(np.uint8), GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(decode_q8_0(rows, torch.float32).numpy(), want)


def test_float64_decoding_does_not_round() -> None:
    blocks = np.array([2.0**-14, 1000.5], np.float16).tobytes() + bytes([0x21] * 16)
    decoded = decode_q4_1(_rows([blocks], 1), torch.float64)
    assert decoded[0, 0] == 2.0**-14 + 1000.5
    assert decoded[0, 31] == 2.0**-13 + 1000.5


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        row_bytes(100, 20)


def test_the_source_text_stands_alone() -> None:
    namespace: dict[str, object] = {}
    exec(source_with(decode_q8_0, body="def run(w):\n    return decode_q8_0(w, torch.float64)"), namespace)
    assert namespace["run"](torch.zeros(1, 34, dtype=torch.int8)).shape == (1, 32)  # type: ignore[operator]
