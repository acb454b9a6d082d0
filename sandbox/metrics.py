"""Metrics of one output against its fp64 reference, measured in one walk over blocks of rows that fit the cache.

Elements that are not finite in the reference or in the result count in the masks and in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

from kernelwright.sandbox.precision import format_of

if TYPE_CHECKING:
    import torch

BLOCK = 1 << 18
"""Elements walked at once: 2 MiB in float64."""
TILE_ROWS, TILE_COLUMNS = 16, 32
LEAST_SLICE = 16
"""Elements below which a slice's rms says less than the largest error does."""
SAMPLE = 1 << 18
"""Elements whose ulp errors the quantiles are taken from, evenly spread."""
_EXPONENT = 0x7FF0_0000_0000_0000


class Metrics(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What is stored for every output of every case; errors are result minus reference."""

    gate: str = ""
    """The gate that failed, '' when all passed."""
    max_abs: float = 0.0
    max_rel: float = 0.0
    """Over elements above 1e-3 of the reference's rms."""
    rms: float = 0.0
    relative_frobenius: float = 0.0
    bias: float = 0.0
    """Signed mean error: shows truncation where rms does not."""
    ulp_p50: float = 0.0
    """Quantiles of the error in ulps of the output's dtype at each element's size."""
    ulp_p99: float = 0.0
    ulp_p999: float = 0.0
    ulp_max: float = 0.0
    max_ratio: float = 0.0
    """Gate A: largest error ÷ what is allowed at factor 1."""
    rms_ratio: float = 0.0
    allowed_max: float = 0.0
    """Gate A: what the largest error is divided by."""
    bound_units: float | None = None
    """Gate B: q, the largest error in units of u(|A||B|); None where no |A||B| exists."""
    calc_diff: float = 0.0
    """1 - 2 sum(xy) / sum(x^2 + y^2) (DeepGEMM's measure), over the whole output."""
    worst_index: tuple[int, ...] = ()
    """Where the largest error is."""
    num_nan: int = 0
    num_posinf: int = 0
    num_neginf: int = 0
    num_mismatched: int = 0
    """Elements whose NaN, +Inf or -Inf differs from the reference's; for integers and Booleans, whose value does."""


@dataclass(slots=True)
class Scale:
    """Size of a reference, over elements that are finite in the output's dtype."""

    top: float = 0.0
    rms: float = 0.0
    is_finite: bool = True


@dataclass(slots=True)
class Measured:
    """Sums over the errors of one result. `rows`, `columns`, `groups`: squared errors, [R], [C], [R, C/32]."""

    shape: tuple[int, ...]
    rows: torch.Tensor
    columns: torch.Tensor
    groups: torch.Tensor
    max_abs: float = 0.0
    worst: int = 0
    total: float = 0.0
    """Sum of squared errors."""
    signed: float = 0.0

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def rms(self) -> float:
        return math.sqrt(self.total / self.count) if self.count else 0.0


def blocks(*tensors: torch.Tensor) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """Yield (first row, blocks of rows [r, C] of each tensor); rows are all axes but the last."""
    flat = [flatten_rows(t) for t in tensors]
    rows, columns = flat[0].shape
    step = max(TILE_ROWS, BLOCK // max(1, columns) // TILE_ROWS * TILE_ROWS)
    for first in range(0, rows, step):
        yield first, tuple(t[first : first + step] for t in flat)


def flatten_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` as [R, C], C its last axis."""
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() and tensor.shape[-1] else tensor.reshape(1, -1)


def scale_of(exact: torch.Tensor, dtype: torch.dtype) -> Scale:
    """Return the size of `exact` (float64) as results of `dtype` can hold it."""
    scale, largest = Scale(), format_of(name_of(dtype)).largest
    total = 0.0
    for _, (y,) in blocks(exact):
        size = y.abs()
        if size.numel() and not float(size.max()) <= largest:
            finite = y.to(dtype).isfinite()
            scale.is_finite = scale.is_finite and bool(finite.all())
            size = size.masked_fill(~finite, 0.0)
        if size.numel():
            scale.top = max(scale.top, float(size.max()))
            total += float(size.square_().sum())
    scale.rms = math.sqrt(total / exact.numel()) if exact.numel() else 0.0
    return scale


def measure(result: torch.Tensor, exact: torch.Tensor) -> Measured:
    """Return the sums over `result` - `exact` (float64), both of one shape."""
    import torch

    columns = flatten_rows(exact).shape[1]
    rows, groups = [], []
    column_sums = torch.zeros(columns, dtype=torch.float64)
    found = Measured(tuple(exact.shape), column_sums, column_sums, column_sums)
    for first, (x, y) in blocks(result, exact):
        error = difference(x, y)
        if not error.numel():
            continue
        found.signed += float(error.sum())
        error.abs_()
        largest, where = error.reshape(-1).max(dim=0)
        if float(largest) > found.max_abs:
            found.max_abs, found.worst = float(largest), first * columns + int(where)
        error.square_()
        column_sums += error.sum(0)
        grouped = _sum_groups(error)
        groups.append(grouped)
        rows.append(grouped.sum(1))
    if rows:
        found.rows, found.groups, found.columns = torch.cat(rows), torch.cat(groups), column_sums
        found.total = float(found.rows.sum())
    return found


def difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return `x` - `y` in float64, 0 where either is not finite as `x` can hold it. A new tensor."""
    import torch

    error = x.double() - y
    # a sum is finite only if all its terms are: one cheap pass in nearly all cases
    if bool(torch.isfinite(error.sum())) and error.numel() and float(y.abs().max()) <= torch.finfo(x.dtype).max:
        return error
    return error.masked_fill_(~(x.isfinite() & y.to(x.dtype).isfinite()), 0.0)


def slices_of(found: Measured) -> dict[str, torch.Tensor]:
    """Return the rms error of every slice along every axis, of every last-axis row and of every tile.

    Keys `axis 0`…, `rows`, `tiles`; slices under 16 elements are left out.
    """
    if not found.count:
        return {}
    shape = found.shape if len(found.shape) > 1 else (1, found.count)
    slices = {}
    by_row = found.rows.reshape(shape[:-1])
    for axis in range(len(shape)):
        size = found.count // shape[axis]
        if size < LEAST_SLICE or shape[axis] == 1:
            continue
        others = tuple(a for a in range(len(shape) - 1) if a != axis)
        sums = found.columns if axis == len(shape) - 1 else (by_row.sum(others) if others else by_row)
        slices[f"axis {axis}"] = (sums / size).sqrt()
    if shape[-1] >= LEAST_SLICE:
        slices["rows"] = (found.rows / shape[-1]).sqrt()
        slices["tiles"] = _tiles(found, shape[-1])
    return slices


def describe(
    result: torch.Tensor, exact: torch.Tensor, found: Measured, scale: Scale
) -> dict[str, float | int | tuple[int, ...]]:
    """Return the fields of Metrics that need only `result`, `exact` (float64) and what was measured of them."""
    import torch

    threshold, form = 1e-3 * scale.rms, format_of(name_of(result.dtype))
    max_rel = ulp_max = cross = 0.0
    samples, stride = [], max(1, exact.numel() // SAMPLE) | 1
    for _, (x, y) in blocks(result, exact):
        error, size = difference(x, y), y.abs()
        if not error.numel():
            continue
        if not scale.is_finite:
            size = size.masked_fill_(~y.to(x.dtype).isfinite(), 0.0)
        cross += float((error * y.nan_to_num(0.0, 0.0, 0.0)).sum())
        error.abs_()
        large = torch.where(size > threshold, error / size, 0.0)
        max_rel = max(max_rel, float(large.max()))
        power = (size.view(torch.int64) & _EXPONENT).view(torch.float64).clamp_(min=form.normal)
        ulps = error.div_(power.mul_(2 * form.unit))
        ulp_max = max(ulp_max, float(ulps.max()))
        samples.append(ulps.reshape(-1)[::stride])
    sample = torch.cat(samples) if samples else torch.zeros(1, dtype=torch.float64)
    middle, high, higher = (_quantile(sample, q) for q in (0.5, 0.99, 0.999))
    energy = scale.rms**2 * found.count
    both = 2 * energy + 2 * cross + found.total
    return {
        "max_abs": found.max_abs, "max_rel": max_rel, "rms": found.rms,
        "relative_frobenius": math.sqrt(found.total / energy) if energy else 0.0,
        "bias": found.signed / found.count if found.count else 0.0,
        "ulp_p50": middle, "ulp_p99": high, "ulp_p999": higher, "ulp_max": ulp_max,
        "calc_diff": found.total / both if both > 0 else 0.0,
        "worst_index": unravel(found.worst, found.shape), **count_masks(result, exact, scale),
    }  # fmt: skip


def count_masks(result: torch.Tensor, exact: torch.Tensor, scale: Scale) -> dict[str, int]:
    """Return how many NaN, +Inf, -Inf the result holds and how many elements differ from the reference in that."""
    import torch

    if scale.is_finite and bool(torch.isfinite(result.double().sum())):
        return {}
    held, mismatched = {}, torch.zeros_like(result, dtype=torch.bool)
    expected = exact.to(result.dtype)
    for name, find in (("num_nan", torch.isnan), ("num_posinf", torch.isposinf), ("num_neginf", torch.isneginf)):
        mine = find(result)
        held[name] = int(mine.sum())
        mismatched |= mine != find(expected)
    return {**held, "num_mismatched": int(mismatched.sum())}


def unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index along each axis of flat `index`."""
    where = []
    for size in reversed(shape):
        index, place = divmod(index, max(1, size))
        where.append(place)
    return tuple(reversed(where))


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name without `torch.`."""
    return str(dtype).removeprefix("torch.")


def _quantile(sample: torch.Tensor, q: float) -> float:
    return float(sample.kthvalue(min(sample.numel(), int(q * sample.numel()) + 1)).values)


def _sum_groups(square: torch.Tensor) -> torch.Tensor:
    """Return sums of 32 neighbours along the last axis; the last group may be shorter."""
    import torch

    rows, columns = square.shape
    whole = columns // TILE_COLUMNS * TILE_COLUMNS
    sums = square[:, :whole].reshape(rows, -1, TILE_COLUMNS).sum(-1)
    return sums if whole == columns else torch.cat((sums, square[:, whole:].sum(-1, keepdim=True)), dim=1)


def _tiles(found: Measured, columns: int) -> torch.Tensor:
    """Return the rms error of tiles of 16 x 32 (and of what is left at the ends, from 16 elements on)."""
    import torch

    rows, width = found.groups.shape
    tall = -(-rows // TILE_ROWS)
    padded = torch.nn.functional.pad(found.groups, (0, 0, 0, tall * TILE_ROWS - rows))
    sums = padded.reshape(tall, TILE_ROWS, width).sum(1)
    heights = torch.full((tall, 1), float(TILE_ROWS), dtype=torch.float64)
    widths = torch.full((1, width), float(TILE_COLUMNS), dtype=torch.float64)
    heights[-1] = rows - (tall - 1) * TILE_ROWS
    widths[0, -1] = columns - (width - 1) * TILE_COLUMNS
    sizes = heights * widths
    return torch.where(sizes >= LEAST_SLICE, sums / sizes, 0.0).sqrt().reshape(-1)
