"""The gate's limits, for engines that compute in float32 and in half precision, and the ruling they give.

For small logit noise the divergence is half its variance, so the limits of half precision would let an undeclared bf16
product through in a float32 engine: each precision has its own. The larger of a limit and a multiple of the null (the
incumbent against itself under legal changes, measured in the same run) applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from kernelwright.engine.gate_fidelity import TIE_MARGIN, PhaseFidelity

State = Literal["pass", "review", "refuse"]
RANGE_ROWS = 16
"""A range of positions with fewer rows is not ruled on by itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Each pair: what passes, and beyond what it is refused; between them a person decides. KLD in nats."""

    mean_kld: tuple[float, float]
    p999_kld: tuple[float, float]
    max_kld: tuple[float, float]
    null_factor: float
    top1: tuple[float, float]
    """Least share of rows with the same most likely token."""
    margin: tuple[float, float]
    """Probability by which the incumbent preferred its token where the patched engine prefers another."""
    rms_delta_p: tuple[float, float]
    draws: float
    """Least share of synchronised draws that agree; below is refused."""
    entropy_shift: float
    """Largest change of the mean entropy, as a share of the incumbent's; above is for review."""


FP32 = Limits(
    mean_kld=(1e-8, 1e-6), p999_kld=(1e-6, 1e-4), max_kld=(1e-5, 1e-3), null_factor=4.0, top1=(0.9999, 0.0),
    margin=(TIE_MARGIN, TIE_MARGIN), rms_delta_p=(1e-4, 1e-3), draws=0.999, entropy_shift=1e-3,
)  # fmt: skip
HALF = Limits(
    mean_kld=(1e-4, 1e-3), p999_kld=(2e-3, 2e-2), max_kld=(5e-2, 0.5), null_factor=2.0, top1=(0.995, 0.99),
    margin=(0.02, 0.1), rms_delta_p=(3e-3, 6e-3), draws=0.98, entropy_shift=0.1,
)  # fmt: skip
LIMITS = {"fp32": FP32, "half": HALF}


class Ruling(BaseModel, frozen=True, extra="forbid"):
    state: State
    reasons: tuple[str, ...] = ()


def rule(fidelity: PhaseFidelity, limits: Limits = FP32) -> Ruling:
    """Return pass, review or refuse, with a reason for each limit that is crossed.

    Mean KLD decides, over all rows and in every range of positions; so do rows that are not finite, and a changed top-1
    that is no tie. A rate of agreement below the limit is held against it only from the second mismatch on: with few
    tokens one tie is all it takes. The perplexity limit is √(2·KLD limit), what a mean KLD at its limit can move it by
    (Pinsker), and only counts where its interval does not contain 0.
    """
    found = [
        *_rule_divergence(fidelity, limits),
        *_rule_tokens(fidelity, limits),
        *_rule_distribution(fidelity, limits),
    ]
    if fidelity.non_finite:
        found.insert(0, ("refuse", f"{fidelity.non_finite} rows with NaN, Inf or equal logits"))
    reasons = [reason for wanted in ("refuse", "review") for state, reason in found if state == wanted]
    states = {state for state, _ in found}
    return Ruling(state="refuse" if "refuse" in states else "review" if states else "pass", reasons=tuple(reasons))


def _rule_divergence(fidelity: PhaseFidelity, limits: Limits) -> Iterator[tuple[State, str]]:
    factor = limits.null_factor
    means = [("mean KLD", fidelity.mean_kld)]
    means += [
        (f"mean KLD at positions {r.low} to {r.high - 1}", r.mean_kld)
        for r in fidelity.by_position
        if r.tokens >= RANGE_ROWS and r.mean_kld > fidelity.mean_kld
    ]
    checks = [(name, value, limits.mean_kld, fidelity.null_kld) for name, value in means]
    checks.append(("p99.9 KLD", fidelity.p999_kld, limits.p999_kld, fidelity.null_p999_kld))
    checks.append(("max KLD", fidelity.max_kld, limits.max_kld, fidelity.null_max_kld))
    for name, value, (passes, refused), null in checks:
        passes = max(passes, factor * null)
        refused = max(refused, passes)
        if value > refused:
            yield "refuse", f"{name} {value:.2e} > {refused:.0e}"
        elif value > passes:
            yield "review", f"{name} {value:.2e} > {passes:.2e}"
    if fidelity.last_quarter_kld > max(limits.mean_kld[0], factor * fidelity.null_kld, 2 * fidelity.first_quarter_kld):
        yield "review", f"the divergence grows with the position, by {fidelity.kld_slope:.1e} in a thousand"


def _rule_tokens(fidelity: PhaseFidelity, limits: Limits) -> Iterator[tuple[State, str]]:
    refused = limits.margin[1]
    if fidelity.mismatches_beyond_ties:
        margin = fidelity.largest_mismatch_margin
        state: State = "refuse" if margin > refused else "review"
        yield state, f"{fidelity.mismatches_beyond_ties} top-1 changes that are no ties (margin up to {margin:.1e})"
    elif fidelity.mismatches > 1 and fidelity.top1 < limits.top1[0]:
        yield "review", f"top-1 agreement {fidelity.top1:.4%} < {limits.top1[0]:.2%}, ties only"
    if fidelity.mismatches > 1 and fidelity.top1 < limits.top1[1]:
        yield "refuse", f"top-1 agreement {fidelity.top1:.2%} < {limits.top1[1]:.2%}"
    draws = 2 * fidelity.tokens * (1 - fidelity.synchronised_draws)
    if draws > 2 and fidelity.synchronised_draws < limits.draws:
        yield "refuse", f"only {fidelity.synchronised_draws:.2%} of synchronised draws agree"


def _rule_distribution(fidelity: PhaseFidelity, limits: Limits) -> Iterator[tuple[State, str]]:
    passes, refused = limits.rms_delta_p
    if fidelity.rms_delta_p > passes:
        state: State = "refuse" if fidelity.rms_delta_p > refused else "review"
        yield state, f"RMS Δp {fidelity.rms_delta_p:.1e} > {passes:.0e}"
    widest = math.sqrt(2 * max(limits.mean_kld[0], limits.null_factor * fidelity.null_kld))
    low, high = fidelity.ln_ppl_interval
    if abs(fidelity.ln_ppl_ratio) > widest and not (fidelity.documents > 1 and low <= 0 <= high):
        yield "review", f"ln perplexity ratio {fidelity.ln_ppl_ratio:+.1e} beyond ±{widest:.1e}"
    before, after = fidelity.mean_entropy
    if abs(after - before) > limits.entropy_shift * max(before, 1e-3):
        yield "review", f"mean entropy {before:.4f} → {after:.4f} nats"
