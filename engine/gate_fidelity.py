"""How far a patched engine's distribution has moved from the incumbent's: pure arithmetic on rows of logits.

KL divergence is taken in float64 by log-sum-exp from float32 logits:
KL(p ‖ q) = Σ p·(a − b) − (lse a − lse b) for logits a (incumbent) and b (patched). For small logit noise it is half the
noise's variance under p; the floor of the arithmetic is about 1e-15. The perplexity ratio, the change of the forced
token's probability and their intervals are paired row by row and bunched by document.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

Logits = NDArray[np.float32]
Floats = NDArray[np.float64]

HISTOGRAM_EDGES = tuple(float(f"1e{k}") for k in range(-16, 2))
TIE_MARGIN = 1e-3
"""A top-1 change where the incumbent's own two best differ by no more than this probability is a tie."""
PASS_KLD = 1e-8
REVIEW_KLD = 1e-6
PASS_P999_KLD = 1e-6
PASS_MAX_KLD = 1e-5
NULL_FACTOR = 4.0
TOP1 = 0.9999


@dataclass(frozen=True)
class Row:
    """What is kept of one pair of logit rows."""

    document: str
    position: int
    """Tokens before the predicted one."""
    kld: float
    """nats; NaN when either row is not finite."""
    agrees: bool
    """Whether both have the same most likely token."""
    margin: float
    """p1 − p2 of the incumbent's row."""
    delta_p: float
    """Patched minus incumbent probability of the forced next token; 0 where there is none."""
    ln_ratio: float
    """ln p(incumbent) − ln p(patched) of the forced next token: above 0 is worse; 0 where there is none."""
    has_target: bool
    degenerate: bool
    """The patched row holds NaN or Inf, or one value only."""


class PhaseFidelity(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One phase of the engine, incumbent against patched, over all forced tokens."""

    phase: str
    tokens: int
    documents: int
    mean_kld: float
    median_kld: float
    p99_kld: float
    p999_kld: float
    max_kld: float
    histogram_edges: tuple[float, ...] = HISTOGRAM_EDGES
    histogram: tuple[int, ...]
    """Rows per bin of KLD; what lies below the first edge is in the first bin."""
    top1: float
    """Share of rows with the same most likely token, ties included as mismatches."""
    mismatches: int
    mismatches_beyond_ties: int
    largest_mismatch_margin: float
    ln_ppl_ratio: float
    """ln(PPL patched / PPL incumbent) on the forced tokens; above 0 is worse."""
    ln_ppl_interval: tuple[float, float]
    """95 %, by document."""
    rms_delta_p: float
    mean_delta_p: float
    mean_delta_p_interval: tuple[float, float]
    non_finite: int
    """Rows of the patched engine with NaN or Inf, or all logits equal."""
    first_quarter_kld: float
    last_quarter_kld: float
    """Mean KLD in the first and last quarter of each document's positions: an error that grows with context shows
    here.
    """
    null_kld: float = 0.0
    """Mean KLD of the incumbent against itself under a legal change."""
    null_p999_kld: float = 0.0
    null_max_kld: float = 0.0
    null_tokens: int = 0


class Ruling(BaseModel, frozen=True, extra="forbid"):
    state: Literal["pass", "review", "refuse"]
    reasons: tuple[str, ...] = ()


def compare_row(base: Logits, new: Logits, target: int | None, document: str, position: int) -> Row:
    """Compare two rows [V] float32 of logits that follow the same tokens; `target` is the forced next token, if any.

    Raises ValueError when the rows differ in length: two engines that serve different vocabularies cannot be compared.
    """
    if base.shape != new.shape or base.ndim != 1:
        raise ValueError(f"rows of logits differ in shape: {base.shape} and {new.shape}")
    a, b = base.astype(np.float64), new.astype(np.float64)
    finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
    degenerate = not np.isfinite(b).all() or bool(b.min() == b.max())
    if not finite:
        return Row(document, position, math.nan, False, 1.0, 0.0, 0.0, False, True)
    best_a, best_b = int(a.argmax()), int(b.argmax())
    p = np.exp(a - a[best_a])
    total = float(p.sum())
    lse_a = float(a[best_a]) + math.log(total)
    lse_b = float(b[best_b]) + math.log(float(np.exp(b - b[best_b]).sum()))
    p /= total
    kld = float(p @ (a - b)) - (lse_a - lse_b)
    top = float(p[best_a])
    delta_p = ln_ratio = 0.0
    if target is not None:
        ln_a, ln_b = float(a[target]) - lse_a, float(b[target]) - lse_b
        delta_p, ln_ratio = math.exp(ln_b) - math.exp(ln_a), ln_a - ln_b
    p[best_a] = -1.0
    return Row(
        document, position, max(kld, 0.0), best_a == best_b, top - float(p.max()), delta_p, ln_ratio,
        target is not None, degenerate,
    )  # fmt: skip


def summarise(phase: str, rows: Sequence[Row], null: Sequence[Row] = ()) -> PhaseFidelity:
    """Return what `rows` say together, with the `null` rows (incumbent against itself) beside.

    Raises ValueError without rows: a fidelity of nothing would read as perfect.
    """
    if not rows:
        raise ValueError(f"no rows were compared in {phase}")
    kld = _klds(rows)
    wrong = [row for row in rows if not row.agrees]
    forced = [row for row in rows if row.has_target]
    delta = np.array([row.delta_p for row in forced] or [0.0])
    first, last = _quarters(rows)
    calm = _klds(null)
    return PhaseFidelity(
        phase=phase,
        tokens=len(rows),
        documents=len({row.document for row in rows}),
        mean_kld=_mean(kld),
        median_kld=_quantile(kld, 0.5),
        p99_kld=_quantile(kld, 0.99),
        p999_kld=_quantile(kld, 0.999),
        max_kld=_quantile(kld, 1.0),
        histogram=tuple(int(n) for n in np.histogram(np.clip(kld, 1e-16, 9.99), HISTOGRAM_EDGES)[0]),
        top1=1.0 - len(wrong) / len(rows),
        mismatches=len(wrong),
        mismatches_beyond_ties=sum(row.margin > TIE_MARGIN for row in wrong),
        largest_mismatch_margin=max((row.margin for row in wrong), default=0.0),
        ln_ppl_ratio=_mean(np.array([row.ln_ratio for row in forced])),
        ln_ppl_interval=_interval_by_document((row.document, row.ln_ratio) for row in forced),
        rms_delta_p=float(np.sqrt(np.mean(delta**2))),
        mean_delta_p=float(delta.mean()),
        mean_delta_p_interval=_interval_by_document((row.document, row.delta_p) for row in forced),
        non_finite=sum(row.degenerate for row in rows),
        first_quarter_kld=first,
        last_quarter_kld=last,
        null_kld=_mean(calm),
        null_p999_kld=_quantile(calm, 0.999),
        null_max_kld=_quantile(calm, 1.0),
        null_tokens=len(null),
    )


def rule(fidelity: PhaseFidelity) -> Ruling:
    """Return pass, review or refuse for an fp32 engine, with a reason for each limit that is crossed.

    Mean KLD decides (pass ≤ max(1e-8, 4 × null), refuse > 1e-6); so do rows that are not finite, and a changed top-1
    that is no tie. A rate of agreement below 99.99 % is held against it only from the second mismatch on: with fewer
    than ten thousand tokens one tie is all it takes. The tails, the perplexity and the growth over positions send to
    review. The perplexity limit is √(2·KLD limit), what a mean KLD at its limit can move it by (Pinsker).
    """
    limit = max(PASS_KLD, NULL_FACTOR * fidelity.null_kld)
    refuse, review = [], []
    if fidelity.non_finite:
        refuse.append(f"{fidelity.non_finite} rows with NaN, Inf or equal logits")
    if fidelity.mean_kld > max(REVIEW_KLD, limit):
        refuse.append(f"mean KLD {fidelity.mean_kld:.2e} > {max(REVIEW_KLD, limit):.0e}")
    elif fidelity.mean_kld > limit:
        review.append(f"mean KLD {fidelity.mean_kld:.2e} > {limit:.2e}")
    if fidelity.mismatches_beyond_ties:
        margin = fidelity.largest_mismatch_margin
        refuse.append(f"{fidelity.mismatches_beyond_ties} top-1 changes that are no ties (margin up to {margin:.1e})")
    elif fidelity.mismatches > 1 and fidelity.top1 < TOP1:
        review.append(f"top-1 agreement {fidelity.top1:.4%} < {TOP1:.2%}, ties only")
    for name, value, bar, null in (
        ("p99.9 KLD", fidelity.p999_kld, PASS_P999_KLD, fidelity.null_p999_kld),
        ("max KLD", fidelity.max_kld, PASS_MAX_KLD, fidelity.null_max_kld),
    ):
        if value > max(bar, NULL_FACTOR * null):
            review.append(f"{name} {value:.2e} > {max(bar, NULL_FACTOR * null):.2e}")
    if abs(fidelity.ln_ppl_ratio) > math.sqrt(2 * limit):
        review.append(f"ln perplexity ratio {fidelity.ln_ppl_ratio:+.1e} beyond ±{math.sqrt(2 * limit):.1e}")
    if fidelity.last_quarter_kld > max(limit, 2 * fidelity.first_quarter_kld):
        review.append("the divergence grows with the position")
    state: Literal["pass", "review", "refuse"] = "refuse" if refuse else "review" if review else "pass"
    return Ruling(state=state, reasons=(*refuse, *review))


def _klds(rows: Sequence[Row]) -> Floats:
    return np.array([row.kld for row in rows if not math.isnan(row.kld)], dtype=np.float64)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _quantile(values: Floats, share: float) -> float:
    # "higher": a tail must not be averaged with its better neighbour
    return float(np.quantile(values, share, method="higher")) if values.size else 0.0


def _quarters(rows: Sequence[Row]) -> tuple[float, float]:
    longest: dict[str, int] = {}
    for row in rows:
        longest[row.document] = max(longest.get(row.document, 0), row.position)
    first = [row for row in rows if 4 * row.position <= longest[row.document]]
    last = [row for row in rows if 4 * row.position > 3 * longest[row.document]]
    return _mean(_klds(first)), _mean(_klds(last))


def _interval_by_document(pairs: Iterable[tuple[str, float]]) -> tuple[float, float]:
    """Student's interval of the mean of document means; the whole line when there are not two documents."""
    from scipy.special import stdtrit

    by_document: dict[str, list[float]] = {}
    for document, value in pairs:
        by_document.setdefault(document, []).append(value)
    means = np.array([np.mean(values) for values in by_document.values()])
    if len(means) < 2:
        return (-1e300, 1e300)  # JSON has no infinity
    half = float(stdtrit(len(means) - 1, 0.975)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return (float(means.mean()) - half, float(means.mean()) + half)
