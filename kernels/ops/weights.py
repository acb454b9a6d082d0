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
    decode: Callable[..., object]
    """(w, dtype) → dense [N, K]; its source goes into references."""
    draw: Callable[..., object]
    """(rows, columns, generator, distribution) → random weights as stored."""
    block_weights: int = blocks.BLOCK_WEIGHTS
    """Weights that take `block_bytes` together; a row is a multiple of them."""

    def stored_columns(self, columns: int) -> int:
        """Return the elements (of `dtype`) of one stored row of `columns` weights."""
        size = 4 if self.dtype == "float32" else 1
        return self.row_bytes(columns) // size

    def row_bytes(self, columns: int) -> int:
        """Return the bytes of one stored row."""
        return blocks.row_bytes(columns, self.block_bytes, self.block_weights)


Q4_1 = WeightKind("q4_1", "int8", blocks.Q4_1_BYTES, blocks.decode_q4_1, draws.draw_q4_1)
Q8_0 = WeightKind("q8_0", "int8", blocks.Q8_0_BYTES, blocks.decode_q8_0, draws.draw_q8_0)
Q4_0 = WeightKind("q4_0", "int8", 18, blocks.decode_q4_0, draws.draw_q4_0)
Q4_K = WeightKind("q4_k", "int8", 144, blocks.decode_q4_k, draws.draw_q4_k, block_weights=256)
Q6_K = WeightKind("q6_k", "int8", 210, blocks.decode_q6_k, draws.draw_q6_k, block_weights=256)
BF16 = WeightKind("bf16", "int8", 2, blocks.decode_bf16, draws.draw_bf16, block_weights=1)
F32 = WeightKind("f32", "float32", 4 * blocks.BLOCK_WEIGHTS, blocks.decode_f32, draws.draw_f32)
QUANTISED = {kind.name: kind for kind in (Q4_0, Q4_1, Q8_0, Q4_K, Q6_K, BF16)}
"""Kinds whose raw bytes travel as int8, by name."""
