"""Random inputs by named distribution, shared by the ops' `generate`. All tensors are made on the CPU.

The names and what each of them catches follow the judge's list: shifted means and outlier columns catch lost
precision, needles catch dropped terms, exact cases catch wrong indices bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import BLOCK_WEIGHTS

if TYPE_CHECKING:
    import torch

DISTRIBUTIONS = (
    "normal", "uniform", "lognormal", "shifted", "outliers", "needle", "exact", "large", "small",
)  # fmt: skip
SCALE = {"large": 2.0**8, "small": 2.0**-8}


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
    if distribution == "lognormal":
        return normal.exp()
    if distribution == "shifted":
        return normal + 10
    if distribution == "outliers":
        columns = shape[-1]
        hot = torch.randperm(columns, generator=generator)[: max(1, columns // 100)]
        normal[..., hot] *= 50
        return normal
    if distribution not in ("normal", *SCALE):
        raise ValueError(f"unknown distribution {distribution!r}; known: {', '.join(DISTRIBUTIONS)}")
    return normal * SCALE.get(distribution, 1.0)


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
