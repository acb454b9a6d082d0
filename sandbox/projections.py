"""The cheap check that every timed result gets: element by element against the incumbent's on the same inputs.

A random projection of each row would cost a pass as well and see less: one wrong element of n is hidden under the
honest rounding of the n - 1 others. So no projection is taken; each element is held to its row's size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.sandbox.fidelity import REVIEW_FACTOR

if TYPE_CHECKING:
    import torch

LEAST_ROW = 16
"""Elements a row needs for its own size to mean something."""
FLOOR = 1e-3
"""Least size of a row, relative to the whole output's rms."""
LOOSE = 0.05


def agree_in_every_element(expected: torch.Tensor, result: torch.Tensor, closely: bool = True) -> bool:
    """Return whether `result` equals `expected`, both [..., C], as closely as two honest kernels do.

    Integers: exactly. Floats: |a - b| <= unit (s + |a|), s the rms of the element's row, at most that of the whole
    output and at least 1e-3 of it; unit = 320 eps. NaN and infinities must stand at the same places, with the same
    sign. About two passes where all agree. `closely` False (a control switched off): unit = 0.05.
    """
    import torch

    if expected.shape != result.shape or expected.dtype != result.dtype:
        return False
    if not expected.numel() or not expected.dtype.is_floating_point:
        return torch.equal(expected, result)
    # a relative Frobenius error of a few eps per arm is honest; the largest element may lie some ten times above
    unit = 20 * REVIEW_FACTOR * torch.finfo(expected.dtype).eps if closely else LOOSE
    by_row = expected.dim() > 1 and expected.shape[-1] >= LEAST_ROW
    a, b = (t.reshape(-1, t.shape[-1]) if by_row else t.reshape(1, -1) for t in (expected, result))
    size = _row_sizes(a)
    # no size is finite where the incumbent has an Inf: every error would be small beside it
    if bool((((a - b).abs_().amax(-1) <= 0.9 * unit * size) & size.isfinite()).all()):
        return True
    return _agree_slowly(a, b, unit)


def _row_sizes(a: torch.Tensor) -> torch.Tensor:
    """Return the size [R] that each row of `a` [R, C] is held to."""
    import torch

    wide = torch.promote_types(a.dtype, torch.float32)  # a sum of squares leaves half precision soon
    norms = torch.linalg.vector_norm(a, dim=-1, dtype=wide)
    whole = torch.linalg.vector_norm(norms) / a.numel() ** 0.5
    return torch.minimum(torch.maximum(norms / a.shape[-1] ** 0.5, FLOOR * whole), whole)


def _agree_slowly(a: torch.Tensor, b: torch.Tensor, unit: float) -> bool:
    import torch

    finite = a.isfinite()
    special, mine = a[~finite], b[~finite]
    if not torch.equal(finite, b.isfinite()) or not torch.equal(special.isnan(), mine.isnan()):
        return False
    if not torch.equal(special[~special.isnan()], mine[~mine.isnan()]):
        return False
    expected, result = a.double().masked_fill(~finite, 0.0), b.double().masked_fill(~finite, 0.0)
    size = _row_sizes(expected).unsqueeze(-1)
    return bool(((expected - result).abs() <= unit * (size + expected.abs())).all())
