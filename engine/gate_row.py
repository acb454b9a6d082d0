"""One pair of logit rows of two engines that have read the same tokens: what is kept of it.

KL divergence is taken in float64 by log-sum-exp from float32 logits:
KL(p ‖ q) = Σ p·(a − b) − (lse a − lse b) for logits a (incumbent) and b (patched). For small logit noise it is half the
noise's variance under p; the floor of the arithmetic is about 1e-15.

Sampling is synchronised (Token-DiFR, arXiv 2511.20621): both engines draw argmax(logits / T + g) with the same Gumbel
noise g, so that honest engines draw the same token but for near ties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Floats = NDArray[np.float64]

TEMPERATURES = (0.7, 1.0)
CONFIDENT_NATS = 0.01
_SHIFTS = 65_521


@dataclass(frozen=True, slots=True)
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
    same_draws: int = len(TEMPERATURES)
    """Temperatures at which both draw the same token from the same noise."""
    entropy: tuple[float, float] = (0.0, 0.0)
    """nats; incumbent, patched."""
    identical: bool = False
    """Whether the rows are the same bit for bit."""


def compare_row(base: Logits, new: Logits, target: int | None, document: str, position: int) -> Row:
    """Compare two rows [V] float32 of logits that follow the same tokens; `target` is the forced next token, if any.

    Raises ValueError when the rows differ in length: two engines that serve different vocabularies cannot be compared.
    """
    if base.shape != new.shape or base.ndim != 1:
        raise ValueError(f"rows of logits differ in shape: {base.shape} and {new.shape}")
    if not (np.isfinite(base).all() and np.isfinite(new).all()):
        broken = not np.isfinite(new).all()
        return Row(document, position, math.nan, False, 1.0, 0.0, 0.0, False, broken, 0)
    a, b = base.astype(np.float64), new.astype(np.float64)
    best_a, best_b = int(a.argmax()), int(b.argmax())
    p, lse_a = _softmax(a)
    q, lse_b = _softmax(b)
    kld = float(p @ (a - b)) - (lse_a - lse_b)
    entropy = (lse_a - float(p @ a), lse_b - float(q @ b))
    delta_p = ln_ratio = 0.0
    if target is not None:
        ln_a, ln_b = float(a[target]) - lse_a, float(b[target]) - lse_b
        delta_p, ln_ratio = math.exp(ln_b) - math.exp(ln_a), ln_a - ln_b
    top = float(p[best_a])
    p[best_a] = -1.0
    return Row(
        document, position, max(kld, 0.0), best_a == best_b, top - float(p.max()), delta_p, ln_ratio,
        target is not None, bool(new.min() == new.max()), _same_draws(base, new, document, position), entropy,
        bool(np.array_equal(base, new)),
    )  # fmt: skip


def _softmax(logits: Floats) -> tuple[Floats, float]:
    best = float(logits.max())
    weights = np.exp(logits - best)
    total = float(weights.sum())
    return weights / total, best + math.log(total)


def _same_draws(base: Logits, new: Logits, document: str, position: int) -> int:
    noise = _noise(len(base))
    start = crc32(f"{document}@{position}".encode()) % _SHIFTS
    gumbel = noise[start : start + len(base)]
    return sum(
        int((base / t + gumbel).argmax()) == int((new / t + gumbel).argmax()) for t in map(np.float32, TEMPERATURES)
    )


@cache
def _noise(size: int) -> Logits:
    """Return Gumbel noise long enough for a row of `size` values from any start: rows take windows of it."""
    uniform = np.random.default_rng(20251120).random(size + _SHIFTS)
    return (-np.log(-np.log(np.maximum(uniform, 1e-300)))).astype(np.float32)
