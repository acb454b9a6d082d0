"""Gates on one result: errors against an fp64 reference, relative to the incumbent's own. Pure; torch tensors in.

0 structure (shape, dtype, NaN and Inf masks, integers exact), A error at most 2 times the incumbent's (max) and 1.5
times (rms), B an a-priori bound, C the dtype's usual tolerance, D bit-exact cases, E every slice along every axis and
every tile, F a declared policy adds its stated error. docs/architecture.md, "Numbers", is the table. Bounds: Higham,
"Accuracy and Stability of Numerical Algorithms", ch. 3; probabilistic growth: Ipsen and Zhou (arXiv 1906.10465);
factor 2: the FlashAttention tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.profiles.errors import WrongUse
from kernelwright.sandbox.metrics import (
    Measured,
    Metrics,
    Scale,
    blocks,
    count_masks,
    describe,
    difference,
    flatten_rows,
    measure,
    name_of,
    scale_of,
    slices_of,
)  # fmt: skip
from kernelwright.sandbox.precision import FORMATS, STRICT, Allowance, Format, allowance_of, format_of

if TYPE_CHECKING:
    import torch

Kind = Literal["copy", "elementwise", "rotation", "matmul", "conditioned"]
"""How an output is made, for Gate C. `elementwise` includes norm and softmax, whose error is relative to the element;
`conditioned`: through several stages, whose error depends on the inputs (attention, gated products, regions)."""

MAX_FACTOR, RMS_FACTOR = 2.0, 1.5
REVIEW_FACTOR = 16.0
"""fp32 results between the firm factor and this one pass only on Gate B."""
SLICE_FACTOR = 4.0
NEVER = 1e30
"""Stands for an infinite ratio, which JSON cannot hold."""
Q_ZERO_MEAN, Q_OTHER = 8.0, 32.0
"""Gate B in units of u(|A||B|): inputs of zero mean; others, where up to 2 sqrt(K) still passes if Gate A does."""
RELATIVE_LIMIT = 2e-6
"""Gate B for fp32 where no |A||B| exists: relative Frobenius error by slice; an honest fp32 GEMM has about 3e-7."""
FLOAT64_LIMIT = 1e-13
"""Relative error of float64 outputs that is always allowed."""
GRIDS = 64.0
"""Smallest denormals of the accumulator that any result may be off: below the normal range roundings do not shrink."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the gates say about one output. `failed` names the gate, '' when all passed."""

    failed: str
    errors: Metrics

    @property
    def max_ratio(self) -> float:
        """Candidate's largest error ÷ what Gate A allows at factor 1."""
        return self.errors.max_ratio

    @property
    def rms_ratio(self) -> float:
        return self.errors.rms_ratio


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is asked of an output beyond its reference values.

    `magnitude`: |A||B| float64 of the output's shape, for linear outputs. `zero_mean`: Gate B must hold outright.
    `bit_exact`: Gate D. `terms`: length K of the reduction. `before`: what an output written in place held; elements
    that the reference leaves alone must stay as they are.
    """

    kind: Kind = "conditioned"
    policy: PrecisionPolicy = STRICT
    magnitude: torch.Tensor | None = None
    zero_mean: bool = False
    bit_exact: bool = False
    terms: int = 1
    before: torch.Tensor | None = None


def judge_output(
    result: torch.Tensor,
    incumbent: torch.Tensor,
    exact: torch.Tensor,
    *,
    magnitude: torch.Tensor | None = None,
    zero_mean: bool = False,
    bit_exact: bool = False,
    kind: Kind = "conditioned",
    policy: PrecisionPolicy = STRICT,
    terms: int = 1,
    before: torch.Tensor | None = None,
) -> Finding:
    """Judge `result` against `exact` (fp64, or the integer values themselves), all of one shape [..., C].

    The keywords are Expectation's. The expected dtype is the incumbent's. Raises WrongUse where the trusted sides do
    not agree or no gate is stated for the dtype.
    """
    if incumbent.shape != exact.shape:
        raise WrongUse(f"the incumbent's result is {tuple(incumbent.shape)}, the reference's {tuple(exact.shape)}",
                       "judge results of one call")  # fmt: skip
    if result.shape != exact.shape:
        return _refuse("shape")
    if result.dtype != incumbent.dtype:
        return _refuse("dtype")
    if not result.dtype.is_floating_point and not result.dtype.is_complex:
        return _judge_integers(result, exact)
    format_of(name_of(result.dtype))
    asked = Expectation(kind, policy, magnitude, zero_mean, bit_exact, terms, before)
    return _judge_floats(result, incumbent, exact.double(), asked)


def _judge_floats(result: torch.Tensor, incumbent: torch.Tensor, exact: torch.Tensor, asked: Expectation) -> Finding:
    scale = scale_of(exact, result.dtype)
    mine, theirs = measure(result, exact), measure(incumbent, exact)
    allowed = allowance_of(asked.policy, name_of(result.dtype))
    facts = describe(result, exact, mine, scale)
    allowed_max, allowed_rms = _allowed(theirs, scale, allowed, result.dtype, asked)
    max_ratio, rms_ratio = mine.max_abs / allowed_max, mine.rms / allowed_rms
    units = _bound_units(result, exact, allowed, asked) if asked.magnitude is not None else None
    failed = _structure(result, incumbent, exact, scale, asked)
    if not failed and asked.bit_exact and not _equal(result, exact):
        failed = "exact case"
    if failed:
        facts |= count_masks(result, exact, scale)
        max_ratio = rms_ratio = NEVER
    else:
        failed = _gate_a(mine, theirs, max_ratio, rms_ratio, allowed_rms, _slack_slices(exact, allowed))
        theirs_units = _bound_units(incumbent, exact, allowed, asked) if asked.magnitude is not None else 0.0
        failed = _review(failed, result, exact, units, theirs_units, max(max_ratio, rms_ratio), allowed, asked)
        if not failed and not _within_tolerance(result, exact, theirs, scale, allowed, asked):
            failed = "tolerance"
    ratios = {"max_ratio": min(max_ratio, NEVER), "rms_ratio": min(rms_ratio, NEVER), "allowed_max": allowed_max}
    return Finding(failed, Metrics.model_validate({**facts, **ratios, "bound_units": units, "gate": failed}))


def _structure(
    result: torch.Tensor, incumbent: torch.Tensor, exact: torch.Tensor, scale: Scale, asked: Expectation
) -> str:
    """Gate 0: masks, copies, and what is left alone in place.

    NaN and Inf may also stand where the incumbent has them: torch's SDPA drops a NaN in q over short contexts.
    """
    if count_masks(result, exact, scale).get("num_mismatched") and count_masks(
        result, incumbent.double(), Scale(is_finite=False)
    ).get("num_mismatched"):
        return "non-finite values"
    if asked.kind == "copy" and not _equal(result, exact):
        return "untouched values"
    if asked.before is not None:
        left_alone = exact == asked.before.double()
        if bool((left_alone & (result != asked.before)).any()):
            return "untouched values"
    return ""


def _allowed(
    theirs: Measured, scale: Scale, allowed: Allowance, dtype: torch.dtype, asked: Expectation
) -> tuple[float, float]:
    """Return what Gate A divides by: the incumbent's largest and rms error, or the rounding of the output if larger.

    Where inputs are not of zero mean its errors cancel by luck (each row constant, say), so a linear op's incumbent is
    taken to err by one unit of u(|A||B|) at least; precision is told on zero-mean inputs. A relaxed policy adds its
    relative error, taken of the largest element or of 4 rms for the largest error.
    """
    form = format_of(name_of(dtype))
    grid = _grid(form)
    ulp = 2 * form.unit
    most = max(theirs.max_abs, ulp * scale.top / MAX_FACTOR, grid)
    rms = max(theirs.rms, 0.5 * ulp * scale.rms / RMS_FACTOR, grid / 4)
    own_reference = form is FORMATS["float64"]  # as precise as the reference: nobody's error can be told
    if own_reference:
        most, rms = max(most, FLOAT64_LIMIT / MAX_FACTOR * scale.top), max(rms, FLOAT64_LIMIT / RMS_FACTOR * scale.rms)
    if asked.magnitude is not None and not asked.bit_exact and (own_reference or not asked.zero_mean):
        size = asked.magnitude.nan_to_num(0.0, 0.0, 0.0)
        most = max(most, allowed.unit * float(size.max())) if size.numel() else most
        rms = max(rms, allowed.unit * float(size.norm()) / max(1, size.numel()) ** 0.5)
    most += allowed.relative * max(scale.top, 4 * scale.rms) + allowed.absolute
    return most, rms + allowed.relative * scale.rms + allowed.absolute


def _grid(form: Format) -> float:
    """Return an error that results of `form` may have whatever their size: denormals are this coarse."""
    return form.subnormal + GRIDS * (form.subnormal if form is FORMATS["float64"] else FORMATS["float32"].subnormal)


def _gate_a(
    mine: Measured, theirs: Measured, max_ratio: float, rms_ratio: float, allowed_rms: float,
    slack: dict[str, torch.Tensor],
) -> str:  # fmt: skip
    if not max_ratio <= MAX_FACTOR or not rms_ratio <= RMS_FACTOR:
        return "error against the incumbent"
    # Gate E: a slice has few elements, so its ratio scatters more; it is held to 4 instead of 1.5
    beside = slices_of(theirs)
    for name, error in slices_of(mine).items():
        limit = SLICE_FACTOR * beside[name].clamp(min=allowed_rms)
        if name in slack:
            limit = limit + SLICE_FACTOR * slack[name]
        if not bool((error <= limit).all()):
            return "error in one slice"
    return ""


def _slack_slices(exact: torch.Tensor, allowed: Allowance) -> dict[str, torch.Tensor]:
    """Return what a relaxed policy adds to every slice: its relative error times the slice's own rms."""
    import torch

    if not allowed.relative:
        return {}
    sizes = slices_of(measure(exact, torch.zeros((), dtype=torch.float64).expand(exact.shape)))
    return {name: allowed.relative * size for name, size in sizes.items()}


def _review(
    failed: str, result: torch.Tensor, exact: torch.Tensor, units: float | None, theirs: float, ratio: float,
    allowed: Allowance, asked: Expectation,
) -> str:  # fmt: skip
    """Gate B: let a weak but honest fp32 sum through, and stop what Gate A cannot see.

    `theirs`: the incumbent's q. A few large columns make sums err in step; nobody is held to less than it reaches.
    """
    if units is not None:
        limit = Q_ZERO_MEAN if asked.zero_mean else Q_OTHER
        limit = max(limit, min(MAX_FACTOR * theirs, Q_OTHER))
        most = limit if asked.zero_mean else max(Q_OTHER, 2 * math.sqrt(asked.terms))
        if not units <= most and not failed:
            return "a-priori bound"
        within = units <= limit
    else:
        within = bool(failed) and _slices_are_close(result, exact, allowed)
    relaxed = allowed.relative or allowed.absolute  # its stated error is wide already
    if failed and not relaxed and name_of(result.dtype) == "float32" and ratio <= REVIEW_FACTOR and within:
        return ""
    return failed


def _bound_units(result: torch.Tensor, exact: torch.Tensor, allowed: Allowance, asked: Expectation) -> float:
    """Return the largest error in units of u(|A||B|), after half an ulp of a narrower output and the policy's own."""
    assert asked.magnitude is not None
    form = format_of(name_of(result.dtype))
    floor, worst = _grid(form) / Q_ZERO_MEAN, 0.0
    for _, (x, y, m) in blocks(result, exact, asked.magnitude):
        if not y.numel():
            continue
        error = difference(x, y).abs_()
        if form.unit > allowed.unit:
            error -= form.unit * y.abs().nan_to_num_(0.0, 0.0, 0.0)
        if allowed.relative or allowed.absolute:
            error -= allowed.relative * m + allowed.absolute
        worst = max(worst, float((error / (allowed.unit * m + floor)).nan_to_num_(0.0).max()))
    return min(worst, NEVER)


def _slices_are_close(result: torch.Tensor, exact: torch.Tensor, allowed: Allowance) -> bool:
    for _, (x, y) in blocks(result, exact):
        error = difference(x, y).norm(dim=-1)
        size = y.nan_to_num(0.0, 0.0, 0.0).norm(dim=-1)
        if not bool((error <= (RELATIVE_LIMIT + allowed.relative) * size + allowed.absolute).all()):
            return False
    return True


def _within_tolerance(
    result: torch.Tensor, exact: torch.Tensor, theirs: Measured, scale: Scale, allowed: Allowance, asked: Expectation
) -> bool:
    """Gate C: atol + rtol |y| on every element; for sums atol is at least 4 sqrt(K) u times the output's size.

    A conditioned output is never held to less than the widest Gate A: its inputs decide what any kernel can reach.
    """
    form = format_of(name_of(result.dtype))
    growth = 4 * math.sqrt(max(2, asked.terms)) * allowed.unit
    atol = form.atol
    if asked.kind in ("rotation", "conditioned"):
        atol = max(atol, growth * scale.top)
    if asked.kind == "conditioned":
        atol = max(atol, REVIEW_FACTOR * theirs.max_abs)
    atol += allowed.absolute + 8 * allowed.relative * scale.rms
    extra = (flatten_rows(asked.magnitude),) if asked.kind == "matmul" and asked.magnitude is not None else ()
    for _, (x, y, *m) in blocks(result, exact, *extra):
        limit = y.abs().nan_to_num_(0.0, 0.0, 0.0).mul_(form.rtol + allowed.relative).add_(atol)
        if m:
            limit += growth * m[0].nan_to_num(0.0, 0.0, 0.0)
        if not bool((difference(x, y).abs_() <= limit).all()):
            return False
    return True


def _refuse(gate: str) -> Finding:
    return Finding(gate, Metrics(gate=gate, max_ratio=NEVER, rms_ratio=NEVER))


def _judge_integers(result: torch.Tensor, exact: torch.Tensor) -> Finding:
    wrong = int((result != exact.to(result.dtype)).sum())
    failed = "integers differ" if wrong else ""
    return Finding(failed, Metrics(gate=failed, num_mismatched=wrong))


def _equal(result: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether `result` is `exact` rounded to its dtype, NaN beside NaN."""
    rounded = exact.to(result.dtype)
    return bool(((result == rounded) | (result.isnan() & rounded.isnan())).all())
