"""Tables of rotary embeddings (Su et al. 2021), plain and stretched, in the arithmetic of `transformers`.

Everything is float32, as the models were trained and as `transformers` computes it (modeling_rope_utils.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from kernelwright.engine.config import Rope

if TYPE_CHECKING:
    from torch import Tensor


def rope_tables(rope: Rope, max_positions: int, head_dim: int, divisors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return cos and sin, [max_positions, head_dim / 2] float32 each, of position · frequency.

    `divisors` [head_dim / 2] divide the frequencies: the form in which GGUF files hold Llama 3's stretching.
    """
    frequencies = rope_frequencies(rope, head_dim)
    if divisors is not None:
        frequencies = frequencies / divisors
    angles = torch.arange(max_positions, dtype=torch.float32)[:, None] * frequencies
    return angles.cos(), angles.sin()


def rope_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Return the frequencies [head_dim / 2] float32, in radians per position: base^(-2i / head_dim), stretched.

    `linear` divides all by the factor. `llama3` does so where fewer than low_factor turns fit into the original
    context, leaves alone where more than high_factor do, and goes from one to the other in between.
    """
    frequencies = 1.0 / rope.base ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if rope.scaling == "linear":
        return frequencies / rope.factor
    if rope.scaling == "default":
        return frequencies
    wavelengths = 2 * math.pi / frequencies
    share = (rope.original_context / wavelengths - rope.low_factor) / (rope.high_factor - rope.low_factor)
    between = (1 - share) * frequencies / rope.factor + share * frequencies
    longest, shortest = rope.original_context / rope.low_factor, rope.original_context / rope.high_factor
    stretched = torch.where(wavelengths > longest, frequencies / rope.factor, frequencies)
    return torch.where((wavelengths <= longest) & (wavelengths >= shortest), between, stretched)
