"""Random inputs by named distribution, shared by the ops' `generate`. All tensors are made on the CPU.

The names and what each of them catches follow the judge's list: shifted means and outlier columns catch lost
precision, needles catch dropped terms, exact cases catch wrong indices bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import BLOCK_WEIGHTS

if TYPE_CHECKING:
    import torch

DISTRIBUTIONS = (
    "normal", "uniform", "laplace", "exponential", "lognormal", "shifted", "outliers", "needle", "exact", "large",
    "small", "constant", "sorted", "alternating", "zeros",
)  # fmt: skip
"""Every op can be given these."""
EXTREMES = {"huge": 2.0**48, "vast": 2.0**80, "tiny": 2.0**-64, "denormal": 2.0**-130}
"""Normal times a power of two: `huge` and `tiny` leave room for one product of two values, `vast` and `denormal` for
none; `tiny` has products that are denormal. Which op can be given which: sandbox/matrix.py."""


def draw(shape: tuple[int, ...], generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return float32 [`shape`] of `distribution`. Raises ValueError on an unknown name."""
    import torch

    if distribution == "uniform":
        return torch.rand(shape, generator=generator) * 2 - 1
    if distribution == "exact":
        return torch.randint(0, 2, shape, generator=generator).float()
    if distribution == "needle":
        return _needle(shape, generator)
    normal = torch.randn(shape, generator=generator)
    if distribution in EXTREMES:
        return normal * EXTREMES[distribution]
    if distribution in ("large", "small"):
        exponent = int(torch.randint(8, 13, (), generator=generator))
        return normal * 2.0 ** (exponent if distribution == "large" else -exponent)
    if distribution not in _FROM_NORMAL:
        raise ValueError(f"unknown distribution {distribution!r}; known: {', '.join((*DISTRIBUTIONS, *EXTREMES))}")
    return _FROM_NORMAL[distribution](normal, generator)


def _exponential(normal: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return normal.exponential_(generator=generator)


def _laplace(normal: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return normal.sign() * _exponential(normal.clone(), generator)


def _outliers(normal: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One column in a hundred is 50 times as large, as a language model's activations are."""
    import torch

    columns = normal.shape[-1]
    hot = torch.randperm(columns, generator=generator)[: max(1, columns // 100)]
    normal[..., hot] *= 50
    return normal


def _constant(normal: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Each row holds one value."""
    return normal[..., :1].expand(normal.shape).contiguous()


def _sorted(normal: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Each row ascends, and most values stand in it twice."""
    import torch

    half = (normal.shape[-1] + 1) // 2
    return torch.cat((normal[..., :half], normal[..., :half]), dim=-1)[..., : normal.shape[-1]].sort(dim=-1).values


def _alternating(normal: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Neighbours along the last axis nearly cancel: 10, -10, …, and a normal on top."""
    normal[..., 0::2] += 10
    normal[..., 1::2] -= 10
    return normal


def _zeros(normal: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the values are +0 or -0, and the first row is nothing else."""
    import torch

    kept = torch.randint(0, 2, normal.shape, generator=generator).float()
    normal *= kept
    normal[:1] *= 0.0
    return normal


_FROM_NORMAL: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "normal": lambda normal, _: normal,
    "laplace": _laplace,
    "exponential": _exponential,
    "lognormal": lambda normal, _: normal.exp(),
    "shifted": lambda normal, _: normal + 10,
    "outliers": _outliers,
    "constant": _constant,
    "sorted": _sorted,
    "alternating": _alternating,
    "zeros": _zeros,
}


def _needle(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Zeros with a single one per row, at a random column."""
    import torch

    needle = torch.zeros(shape)
    columns = torch.randint(0, shape[-1], (*shape[:-1], 1), generator=generator)
    return needle.scatter_(-1, columns, 1.0)


def draw_q4_1(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return random Q4_1 blocks [rows, columns/32*20] int8, of the size weights of a language model have.

    `exact` has d in {1, 2} and m in {-8, 0}, so that sums over {0,1} inputs are exact in float32.
    """
    import torch

    count = (rows, columns // BLOCK_WEIGHTS)
    if distribution == "exact":
        d = torch.randint(1, 3, count, generator=generator).float()
        m = torch.randint(0, 2, count, generator=generator).float() * -8
    else:
        d = torch.rand(count, generator=generator) * 0.02 + 0.002
        m = -d * (7.5 + torch.randn(count, generator=generator))
    scales = torch.stack((d, m), dim=-1).to(torch.float16).view(torch.int8)
    nibbles = torch.randint(-128, 128, (*count, 16), generator=generator, dtype=torch.int8)
    return torch.cat((scales, nibbles), dim=-1).reshape(rows, -1)


def draw_q8_0(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return random Q8_0 blocks [rows, columns/32*34] int8; `exact` has d in {1, 2}."""
    import torch

    count = (rows, columns // BLOCK_WEIGHTS)
    if distribution == "exact":
        d = torch.randint(1, 3, count, generator=generator).float()
    else:
        d = torch.rand(count, generator=generator) * 0.002 + 0.0002
    scales = d.unsqueeze(-1).to(torch.float16).view(torch.int8)
    q = torch.randint(-127, 128, (*count, 32), generator=generator, dtype=torch.int8)
    return torch.cat((scales, q), dim=-1).reshape(rows, -1)


def draw_q4_0(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return random Q4_0 blocks [rows, columns/32*18] int8; `exact` has d in {1, 2}."""
    import torch

    count = (rows, columns // BLOCK_WEIGHTS)
    nibbles = torch.randint(-128, 128, (*count, 16), generator=generator, dtype=torch.int8)
    return torch.cat((_scales(count, generator, distribution, 0.02), nibbles), dim=-1).reshape(rows, -1)


def draw_q4_k(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return random Q4_K blocks [rows, columns/256*144] int8, of the size weights of a language model have.

    Scales and mins take all 6 bits; `exact` has d and dmin in {1, 2}, scales below 4 and mins below 16.
    """
    import torch

    count = (rows, columns // 256)
    scales, mins = (torch.randint(0, 64, (*count, 8), generator=generator, dtype=torch.uint8) for _ in range(2))
    if distribution == "exact":
        scales, mins = scales % 4, mins % 16
    # the upper two bits of the last four lie above the first four's six bits
    tops = [part[..., :4] | part[..., 4:] >> 4 << 6 for part in (scales, mins)]
    packed = torch.cat((*tops, scales[..., 4:] & 15 | mins[..., 4:] << 4), dim=-1).view(torch.int8)
    nibbles = torch.randint(-128, 128, (*count, 128), generator=generator, dtype=torch.int8)
    d, dmin = _scales(count, generator, distribution, 0.0006), _scales(count, generator, distribution, 0.005)
    return torch.cat((d, dmin, packed, nibbles), dim=-1).reshape(rows, -1)


def draw_q6_k(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return random Q6_K blocks [rows, columns/256*210] int8; `exact` has d in {1, 2} and scales in -2 … 2."""
    import torch

    count = (rows, columns // 256)
    q = torch.randint(-128, 128, (*count, 192), generator=generator, dtype=torch.int8)
    low, high = (-2, 3) if distribution == "exact" else (-128, 128)
    scales = torch.randint(low, high, (*count, 16), generator=generator, dtype=torch.int8)
    return torch.cat((q, scales, _scales(count, generator, distribution, 0.0001)), dim=-1).reshape(rows, -1)


def draw_bf16(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return the bytes of random bfloat16 weights [rows, columns*2] int8; small integers for `exact`."""
    import torch

    return draw_f32(rows, columns, generator, distribution).bfloat16().view(torch.int8)


def _scales(count: tuple[int, int], generator: torch.Generator, distribution: str, size: float) -> torch.Tensor:
    """Return the bytes of one half per block [*count, 2] int8: 0.1 to 1.1 times `size`; 1 or 2 for `exact`."""
    import torch

    if distribution == "exact":
        d = torch.randint(1, 3, count, generator=generator).float()
    else:
        d = (torch.rand(count, generator=generator) + 0.1) * size
    return d.unsqueeze(-1).to(torch.float16).view(torch.int8)


def draw_f32(rows: int, columns: int, generator: torch.Generator, distribution: str) -> torch.Tensor:
    """Return dense weights [rows, columns] float32; small integers for `exact`."""
    import torch

    if distribution == "exact":
        return torch.randint(-8, 9, (rows, columns), generator=generator).float()
    return torch.randn((rows, columns), generator=generator) * 0.05


def draw_norm_weight(size: int, generator: torch.Generator) -> torch.Tensor:
    """Return a norm's gains [size] float32, around 1."""
    import torch

    return 1 + 0.2 * torch.randn((size,), generator=generator)


def rope_tables(positions: int, half: int, theta: float = 100_000.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin [positions, half] float32 of RoPE with base `theta`, computed in float64."""
    import torch

    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()
