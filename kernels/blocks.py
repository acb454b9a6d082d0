"""GGUF weight blocks as torch tensors: sizes, exact decoding, and the decoding as source text for references.

Format: ggml's block_q4_1 and block_q8_0. Q4_1: 20 bytes per 32 weights (f16 d, f16 m, 16 bytes of nibbles, low
nibbles are weights 0-15, high nibbles 16-31; w = d*q + m). Q8_0: 34 bytes per 32 (f16 d, 32 int8; w = d*q).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BLOCK_WEIGHTS = 32
Q4_1_BYTES = 20
Q8_0_BYTES = 34


def row_bytes(columns: int, block_bytes: int) -> int:
    """Return the bytes of one row of `columns` weights. Raises ValueError when the row is not whole blocks."""
    if columns % BLOCK_WEIGHTS:
        raise ValueError(f"a quantised row has a multiple of {BLOCK_WEIGHTS} weights, not {columns}")
    return columns // BLOCK_WEIGHTS * block_bytes


def decode_q4_1(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode Q4_1 blocks w [N, K/32*20] int8 to [N, K] `dtype`; exact in float64."""
    import torch

    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).to(dtype)
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).to(dtype)
    return (q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1)


def decode_q8_0(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode Q8_0 blocks w [N, K/32*34] int8 to [N, K] `dtype`; exact in float32 and float64."""
    import torch

    blocks = w.reshape(w.shape[0], -1, 34)
    scales = blocks[:, :, :2].contiguous().view(torch.float16).to(dtype)
    return (blocks[:, :, 2:].to(dtype) * scales).reshape(w.shape[0], -1)


def decode_f32(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return dense weights w [N, K] as `dtype`; for models that are not quantised."""
    return w.to(dtype)


def source_with(*functions: Callable[..., object], body: str) -> str:
    """Return self-contained python source: imports, the text of `functions`, then `body`."""
    parts = ["from __future__ import annotations", "import torch\nimport torch.nn.functional as F"]
    parts += [inspect.getsource(function).rstrip() for function in functions]
    return "\n\n".join([*parts, body.strip()]) + "\n"
