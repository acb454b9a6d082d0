"""The kinds of weights linear ops come in: how a row is stored, decoded and drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.kernels import blocks
from kernelwright.kernels.ops import draws


@dataclass(frozen=True, slots=True)
class WeightKind:
    name: str
    dtype: str
    block_bytes: int
    """Bytes per 32 weights."""
    decode: Callable[..., object]
    """(w, dtype) → dense [N, K]; its source goes into references."""
    draw: Callable[..., object]
    """(rows, columns, generator, distribution) → random weights as stored."""

    def stored_columns(self, columns: int) -> int:
        """Return the elements (of `dtype`) of one stored row of `columns` weights."""
        size = 4 if self.dtype == "float32" else 1
        return blocks.row_bytes(columns, self.block_bytes) // size

    def row_bytes(self, columns: int) -> int:
        """Return the bytes of one stored row."""
        return blocks.row_bytes(columns, self.block_bytes)


Q4_1 = WeightKind("q4_1", "int8", blocks.Q4_1_BYTES, blocks.decode_q4_1, draws.draw_q4_1)
Q8_0 = WeightKind("q8_0", "int8", blocks.Q8_0_BYTES, blocks.decode_q8_0, draws.draw_q8_0)
F32 = WeightKind("f32", "float32", 4 * blocks.BLOCK_WEIGHTS, blocks.decode_f32, draws.draw_f32)
