"""How far a patched engine's distribution has moved from the incumbent's, phase by phase: arithmetic on compared rows.

The perplexity ratio, the change of the forced token's probability and their intervals are paired row by row and bunched
by document. Growth over the position is the least-squares slope of the divergence, and its mean in ranges of positions
that double: an error that begins at some length of the context fills the ranges beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import BaseModel

from kernelwright.engine.gate_row import CONFIDENT_NATS, TEMPERATURES, Floats, Row

HISTOGRAM_EDGES = tuple(float(f"1e{k}") for k in range(-16, 2))
TIE_MARGIN = 1e-3
"""A top-1 change where the incumbent's own two best differ by no more than this probability is a tie (fp32)."""


class PositionRange(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Rows whose position lies in low ≤ position < high."""

    low: int
    high: int
    tokens: int
    mean_kld: float
    max_kld: float


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
    """Mean KLD of the quarter of all rows with the least and the greatest positions."""
    kld_slope: float = 0.0
    """Growth of the KLD over a thousand positions, by least squares; nats."""
    by_position: tuple[PositionRange, ...] = ()
    synchronised_draws: float = 1.0
    """Share of draws that are the same token when both engines draw with the same noise (temperatures 0.7 and 1)."""
    mean_entropy: tuple[float, float] = (0.0, 0.0)
    """nats; incumbent, patched."""
    confident: tuple[float, float] = (0.0, 0.0)
    """Share of rows with an entropy below 0.01 nat; incumbent, patched."""
    identical: float = 0.0
    """Share of rows that are the same bit for bit."""
    null_kld: float = 0.0
    """Mean KLD of the incumbent against itself under a legal change."""
    null_p999_kld: float = 0.0
    null_max_kld: float = 0.0
    null_tokens: int = 0


def summarise(
    phase: str, rows: Sequence[Row], null: Sequence[Row] = (), tie_margin: float | None = None
) -> PhaseFidelity:
    """Return what `rows` say together, with the `null` rows (incumbent against itself) beside.

    Raises ValueError without rows: a fidelity of nothing would read as perfect.
    """
    if not rows:
        raise ValueError(f"no rows were compared in {phase}")
    margin = TIE_MARGIN if tie_margin is None else tie_margin
    kld, calm = _klds(rows), _klds(null)
    wrong = [row for row in rows if not row.agrees]
    forced = [row for row in rows if row.has_target]
    delta = np.array([row.delta_p for row in forced] or [0.0])
    first, last = _quarters(rows)
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
        mismatches_beyond_ties=sum(row.margin > margin for row in wrong),
        largest_mismatch_margin=max((row.margin for row in wrong), default=0.0),
        ln_ppl_ratio=_mean(np.array([row.ln_ratio for row in forced])),
        ln_ppl_interval=_interval_by_document((row.document, row.ln_ratio) for row in forced),
        rms_delta_p=float(np.sqrt(np.mean(delta**2))),
        mean_delta_p=float(delta.mean()),
        mean_delta_p_interval=_interval_by_document((row.document, row.delta_p) for row in forced),
        non_finite=sum(row.degenerate for row in rows),
        first_quarter_kld=first,
        last_quarter_kld=last,
        kld_slope=_slope(rows),
        by_position=_by_position(rows),
        synchronised_draws=sum(row.same_draws for row in rows) / (len(TEMPERATURES) * len(rows)),
        mean_entropy=(_mean(_entropies(rows, 0)), _mean(_entropies(rows, 1))),
        confident=tuple(float(np.mean(_entropies(rows, arm) < CONFIDENT_NATS)) for arm in (0, 1)),  # type: ignore[arg-type]
        identical=sum(row.identical for row in rows) / len(rows),
        null_kld=_mean(calm),
        null_p999_kld=_quantile(calm, 0.999),
        null_max_kld=_quantile(calm, 1.0),
        null_tokens=len(null),
    )


def _klds(rows: Sequence[Row]) -> Floats:
    return np.array([row.kld for row in rows if not math.isnan(row.kld)], dtype=np.float64)


def _entropies(rows: Sequence[Row], arm: int) -> Floats:
    return np.array([row.entropy[arm] for row in rows], dtype=np.float64)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _quantile(values: Floats, share: float) -> float:
    # "higher": a tail must not be averaged with its better neighbour
    return float(np.quantile(values, share, method="higher")) if values.size else 0.0


def _quarters(rows: Sequence[Row]) -> tuple[float, float]:
    ordered = sorted(rows, key=lambda row: row.position)
    quarter = max(1, len(ordered) // 4)
    return _mean(_klds(ordered[:quarter])), _mean(_klds(ordered[-quarter:]))


def _slope(rows: Sequence[Row]) -> float:
    kept = [row for row in rows if not math.isnan(row.kld)]
    x = np.array([row.position for row in kept], dtype=np.float64)
    if not kept or float(np.ptp(x)) == 0:
        return 0.0
    x -= x.mean()
    return 1000 * float(x @ _klds(kept)) / float(x @ x)


def _by_position(rows: Sequence[Row]) -> tuple[PositionRange, ...]:
    ranges: dict[int, list[Row]] = {}
    for row in rows:
        ranges.setdefault(max(row.position, 16).bit_length(), []).append(row)
    return tuple(
        PositionRange(
            low=0 if bits == 5 else 1 << bits - 1,
            high=1 << bits,
            tokens=len(inside),
            mean_kld=_mean(_klds(inside)),
            max_kld=_quantile(_klds(inside), 1.0),
        )
        for bits, inside in sorted(ranges.items())
    )


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
