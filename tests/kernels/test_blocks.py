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
from kernelwright.kernels.ops.weights import QUANTISED

HALF = st.floats(width=16, allow_nan=False, allow_infinity=False)


def _rows(blocks: list[bytes], per_row: int) -> torch.Tensor:
    raw = np.frombuffer(b"".join(blocks), dtype=np.int8).reshape(-1, per_row * len(blocks[0]))
    return torch.from_numpy(raw.copy())


def _numbers(kind: str) -> st.SearchStrategy[bytes]:
    """Blocks of any bytes whose halves are finite."""
    size = QUANTISED[kind].block_bytes
    if kind == "bf16":
        return st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: np.float32(x).tobytes()[2:])
    if kind == "q6_k":
        return st.tuples(st.binary(min_size=208, max_size=208), HALF).map(lambda t: t[0] + np.float16(t[1]).tobytes())
    count = 2 if kind in ("q4_1", "q4_k") else 1
    halves = st.lists(HALF, min_size=count, max_size=count).map(lambda values: np.array(values, np.float16).tobytes())
    rest = size - 2 * count
    return st.tuples(halves, st.binary(min_size=rest, max_size=rest)).map(b"".join)


@pytest.mark.parametrize("kind", QUANTISED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_kind_decodes_as_gguf_does(kind: str, data: st.DataObject) -> None:
    rows = _rows(data.draw(st.lists(_numbers(kind), min_size=6, max_size=6)), 2)
    want = dequantize(rows.numpy().view(np.uint8), GGMLQuantizationType[kind.upper()])
    np.testing.assert_array_equal(QUANTISED[kind].decode(rows, torch.float32).numpy(), want)
    wide = QUANTISED[kind].decode(rows, torch.float64)
    np.testing.assert_array_equal(wide.float().numpy(), want)


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("distribution", ["normal", "exact"])
def test_draws_are_valid_blocks_of_many_values(kind: str, distribution: str) -> None:
    rows = QUANTISED[kind].draw(3, 512, torch.Generator().manual_seed(0), distribution)
    assert (rows.dtype, rows.shape) == (torch.int8, (3, QUANTISED[kind].row_bytes(512)))
    values = QUANTISED[kind].decode(rows, torch.float64)
    assert bool(values.isfinite().all()) and len(values.unique()) > 10
    assert torch.equal(values, values.round()) == (distribution == "exact")
    assert distribution == "exact" or 0.01 < float(values.std()) < 0.2


def test_q4_k_takes_all_bits_of_scales_and_mins() -> None:
    """Scale j and min j of 6 bits: the last four's upper bits lie above the first four's own."""
    s, m = list(range(50, 58)), list(range(13, 21))
    packed = [s[j] | s[j + 4] >> 4 << 6 for j in range(4)] + [m[j] | m[j + 4] >> 4 << 6 for j in range(4)]
    packed += [s[j] & 15 | (m[j] & 15) << 4 for j in range(4, 8)]
    block = np.array([1.0, 2.0], np.float16).tobytes() + bytes(packed) + bytes([0x31] * 128)
    got = QUANTISED["q4_k"].decode(_rows([block], 1), torch.float64).view(8, 32)
    want = [[(3 if part % 2 else 1) * s[part] - 2 * m[part]] * 32 for part in range(8)]
    assert got.tolist() == want


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
