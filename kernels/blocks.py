"""GGUF weight blocks as torch tensors: sizes, exact decoding, and the decoding as source text for references.

Format: ggml's blocks. Q4_1: 20 bytes per 32 weights (f16 d, f16 m, 16 bytes of nibbles, low nibbles are weights 0-15,
high nibbles 16-31; w = d*q + m). Q4_0: 18 bytes per 32 (f16 d, nibbles; w = d*(q - 8)). Q8_0: 34 bytes per 32 (f16 d,
32 int8; w = d*q). Q4_K: 144 bytes per 256 (f16 d, f16 dmin, 12 bytes with 8 scales s and 8 mins m of 6 bits, 128 bytes
of nibbles; w = d*s*q - dmin*m per 32). Q6_K: 210 bytes per 256 (128 bytes of low nibbles, 64 bytes of high pairs of
bits, 16 int8 scales s, f16 d; w = d*s*(q - 32) per 16). BF16: the upper two bytes of a float32, here as raw bytes.
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


def row_bytes(columns: int, block_bytes: int, block_weights: int = BLOCK_WEIGHTS) -> int:
    """Return the bytes of one row of `columns` weights. Raises ValueError when the row is not whole blocks."""
    if columns % block_weights:
        raise ValueError(f"a quantised row has a multiple of {block_weights} weights, not {columns}")
    return columns // block_weights * block_bytes


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


def decode_q4_0(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode Q4_0 blocks w [N, K/32*18] int8 to [N, K] `dtype`; exact in float32 and float64."""
    import torch

    blocks = w.reshape(w.shape[0], -1, 18)
    scales = blocks[:, :, :2].contiguous().view(torch.float16).to(dtype)
    nibbles = blocks[:, :, 2:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).to(dtype) - 8
    return (q * scales).reshape(w.shape[0], -1)


def decode_q4_k(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode Q4_K blocks w [N, K/256*144] int8 to [N, K] `dtype`; rounded once in float32, exact in float64."""
    import torch

    blocks = w.reshape(w.shape[0], -1, 144)
    halves = blocks[:, :, :4].contiguous().view(torch.float16).to(dtype)
    packed = blocks[:, :, 4:16].contiguous().view(torch.uint8)
    low, middle, mixed = packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]
    s = torch.cat((low & 63, (mixed & 15) | (low >> 6 << 4)), dim=2)
    m = torch.cat((middle & 63, (mixed >> 4) | (middle >> 6 << 4)), dim=2)
    # 32 bytes hold two runs of 32 weights: the low nibbles, then the high ones
    nibbles = blocks[:, :, 16:].contiguous().view(torch.uint8).reshape(*blocks.shape[:2], 4, 1, 32)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=3).reshape(*blocks.shape[:2], 8, 32).to(dtype)
    scale, minimum = halves[:, :, :1] * s.to(dtype), halves[:, :, 1:] * m.to(dtype)
    return (q * scale.unsqueeze(3) - minimum.unsqueeze(3)).reshape(w.shape[0], -1)


def decode_q6_k(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode Q6_K blocks w [N, K/256*210] int8 to [N, K] `dtype`; exact in float32 and float64."""
    import torch

    blocks = w.reshape(w.shape[0], -1, 210)
    low = blocks[:, :, :128].contiguous().view(torch.uint8).reshape(*blocks.shape[:2], 2, 1, 64)
    high = blocks[:, :, 128:192].contiguous().view(torch.uint8).reshape(*blocks.shape[:2], 2, 1, 32)
    d = blocks[:, :, 208:].contiguous().view(torch.float16).to(dtype)
    # of each 128 weights: 64 bytes of low nibbles, then the same bytes' high ones; 32 bytes of four pairs of bits
    q = torch.cat((low & 15, low >> 4), dim=3).flatten(3)
    q |= torch.cat((high & 3, high >> 2 & 3, high >> 4 & 3, high >> 6), dim=3).flatten(3) << 4
    scales = (d * blocks[:, :, 192:208].to(dtype)).unsqueeze(3)
    return ((q.reshape(*scales.shape[:3], 16).to(dtype) - 32) * scales).reshape(w.shape[0], -1)


def decode_bf16(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode bfloat16 values w [N, K*2] int8, little endian, to [N, K] `dtype`; exact."""
    import torch

    return w.contiguous().view(torch.bfloat16).to(dtype)


def decode_f32(w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return dense weights w [N, K] as `dtype`; for models that are not quantised."""
    return w.to(dtype)


def source_with(*functions: Callable[..., object], body: str) -> str:
    """Return self-contained python source: imports, the text of `functions`, then `body`."""
    parts = ["from __future__ import annotations", "import torch\nimport torch.nn.functional as F"]
    parts += [inspect.getsource(function).rstrip() for function in functions]
    return "\n\n".join([*parts, body.strip()]) + "\n"
