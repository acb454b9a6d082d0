"""Fidelity of one result: errors against an fp64 reference, relative to the incumbent's own. Pure; torch tensors in.

Gates: 0 structure (shape, dtype, NaN/Inf masks, integers exact), A error at most 2 times the incumbent's (max) and
1.5 times (rms), B an a-priori bound, D bit-exact cases, E every slice on its own. Bounds: Higham, "Accuracy and
Stability of Numerical Algorithms", ch. 3; probabilistic growth: Ipsen and Zhou (arXiv 1906.10465); factor 2: the
FlashAttention tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_FACTOR, RMS_FACTOR = 2.0, 1.5
REVIEW_FACTOR = 16.0
"""fp32 results between the firm factor and this one pass only on Gate B."""
SLICE_FACTOR = 4.0
NEVER = 1e30
"""Stands for an infinite ratio, which JSON cannot hold."""
Q_LIMIT = 8.0
RELATIVE_LIMIT = 2e-6
"""Gate B for fp32 where no |A||B| exists: relative Frobenius error by slice; an honest fp32 GEMM has about 3e-7."""
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of one result against the fp64 reference, over finite elements."""

    max_abs: float
    rms: float
    max_rel: float
    """Over elements above 1e-3 of the reference's rms."""
    bias: float
    """Signed mean error: shows truncation where rms does not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a gate says about one output. `failed` names the gate, '' when all passed."""

    failed: str
    errors: Errors
    max_ratio: float
    """Candidate's max error ÷ what Gate A allows at factor 1."""
    rms_ratio: float


def judge_output(
    result: torch.Tensor,
    incumbent: torch.Tensor,
    exact: torch.Tensor,
    *,
    magnitude: torch.Tensor | None = None,
    zero_mean: bool = False,
    bit_exact: bool = False,
) -> Finding:
    """Judge `result` against `exact` (fp64, or the integer values themselves), all of one shape [..., C].

    `magnitude` is |A||B| for linear outputs. `zero_mean`: Gate B must hold outright. `bit_exact`: Gate D.
    """
    if not result.dtype.is_floating_point:
        return _judge_integers(result, exact)
    if not _masks_agree(result, exact.to(result.dtype)):
        return Finding("non-finite values", _NO_ERRORS, NEVER, NEVER)
    errors, slices_c = measure_errors(result, exact)
    if bit_exact and not _equal(result, exact.to(result.dtype)):
        return Finding("exact case", errors, NEVER, NEVER)
    baseline, slices_b = measure_errors(incumbent, exact)
    finite = exact[exact.isfinite()].double()
    dtype = str(result.dtype).removeprefix("torch.")
    ulp = 2 * UNIT_ROUNDOFF[dtype]
    top = finite.abs().max().item() if finite.numel() else 0.0
    rms = finite.square().mean().sqrt().item() if finite.numel() else 0.0
    allowed_max = max(baseline.max_abs, ulp * top / MAX_FACTOR, 1e-300)
    allowed_rms = max(baseline.rms, 0.5 * ulp * rms / RMS_FACTOR, 1e-300)
    max_ratio, rms_ratio = errors.max_abs / allowed_max, errors.rms / allowed_rms
    failed = _gate_a(max_ratio, rms_ratio, slices_c, slices_b, allowed_rms)
    within_b = _gate_b(errors, result, exact, magnitude, dtype)
    if failed and dtype == "float32" and max(max_ratio, rms_ratio) <= REVIEW_FACTOR and within_b:
        failed = ""
    if not failed and zero_mean and magnitude is not None and not within_b:
        failed = "a-priori bound"
    return Finding(failed, errors, max_ratio, rms_ratio)


def measure_errors(result: torch.Tensor, exact: torch.Tensor) -> tuple[Errors, torch.Tensor]:
    """Return the errors of `result` and the rms error of every slice along the last axis."""
    import torch

    finite = exact.isfinite()
    difference = torch.where(finite, result.double() - exact.double(), 0.0)
    size = exact.double().masked_fill(~finite, 0.0)
    scale = size.square().mean().sqrt()
    large = size.abs() > 1e-3 * scale
    relative = (difference.abs() / size.abs())[large]
    errors = Errors(
        max_abs=_value(difference.abs().max()) if difference.numel() else 0.0,
        rms=_value(difference.square().mean().sqrt()) if difference.numel() else 0.0,
        max_rel=_value(relative.max()) if relative.numel() else 0.0,
        bias=_value(difference.mean()) if difference.numel() else 0.0,
    )
    width = result.shape[-1] if result.dim() else 1
    return errors, difference.reshape(-1, max(1, width)).square().mean(-1).sqrt()


def _gate_a(
    max_ratio: float, rms_ratio: float, slices_c: torch.Tensor, slices_b: torch.Tensor, allowed_rms: float
) -> str:
    if not max_ratio <= MAX_FACTOR or not rms_ratio <= RMS_FACTOR:
        return "error against the incumbent"
    # Gate E: a slice has few elements, so its ratio scatters more; it is held to 4 instead of 1.5
    if bool((slices_c > SLICE_FACTOR * slices_b.clamp(min=allowed_rms)).any()):
        return "error in one slice"
    return ""


def _gate_b(
    errors: Errors, result: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor | None, dtype: str
) -> bool:
    import torch

    finite = exact.isfinite()
    difference = torch.where(finite, result.double() - exact.double(), 0.0).abs()
    if magnitude is not None:
        bound = Q_LIMIT * UNIT_ROUNDOFF["float32"] * magnitude + UNIT_ROUNDOFF[dtype] * exact.double().abs()
        return bool((difference <= torch.where(finite, bound, torch.inf)).all())
    size = exact.double().masked_fill(~finite, 0.0)
    width = max(1, result.shape[-1] if result.dim() else 1)
    error_norm = difference.reshape(-1, width).norm(dim=-1)
    return bool((error_norm <= RELATIVE_LIMIT * size.reshape(-1, width).norm(dim=-1)).all())


def _judge_integers(result: torch.Tensor, exact: torch.Tensor) -> Finding:
    same = _equal(result, exact.to(result.dtype))
    return Finding("" if same else "integers differ", _NO_ERRORS, 0.0, 0.0)


def _masks_agree(result: torch.Tensor, exact: torch.Tensor) -> bool:
    return (
        _equal(result.isnan(), exact.isnan())
        and _equal(result.isposinf(), exact.isposinf())
        and _equal(result.isneginf(), exact.isneginf())
    )


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    return torch.equal(a, b)


def _value(tensor: torch.Tensor) -> float:
    return float(tensor.item())


_NO_ERRORS = Errors(0.0, 0.0, 0.0, 0.0)
