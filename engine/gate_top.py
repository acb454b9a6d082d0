"""Compare two engines that show only their likeliest tokens: what log-probabilities over the API can tell.

Tokens that both show are compared one by one, all others as one: the divergence of the distributions so made coarser is
never more than that of the whole ones (data processing), so it is a lower bound, and is called so where it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from kernelwright.engine.gate_row import TEMPERATURES, Row

LEAST_REST = 1e-6
"""Probability of all other tokens, at the least: what is left of 1 after some rounded terms is not known better."""


@dataclass(frozen=True, slots=True)
class Top:
    """What one engine says of the next token: natural-log probabilities of the likeliest tokens by their text."""

    top: Mapping[str, float]
    token: str = ""
    """The token that came."""
    logprob: float | None = None


def compare_top(base: Top, new: Top, document: str, position: int) -> Row:
    """Compare what two engines say after the same text. A row without numbers counts as one that is not finite."""
    values = [*base.top.values(), *new.top.values()]
    if not base.top or not new.top or not all(map(math.isfinite, values)):
        return Row(document, position, math.nan, False, 1.0, 0.0, 0.0, False, True, 0)
    shared = sorted(base.top.keys() & new.top.keys())
    p = [math.exp(base.top[token]) for token in shared]
    q = [math.exp(new.top[token]) for token in shared]
    p.append(max(LEAST_REST, 1 - sum(p)))
    q.append(max(LEAST_REST, 1 - sum(q)))
    # normalised: what is compared must be two distributions, or a rounded sum would pass for a divergence
    p, q = ([value / sum(side) for value in side] for side in (p, q))
    kld = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    best = sorted(base.top, key=lambda token: -base.top[token])
    agrees = best[0] == max(new.top, key=lambda token: new.top[token])
    margin = math.exp(base.top[best[0]]) - (math.exp(base.top[best[1]]) if len(best) > 1 else 0.0)
    known = base.logprob is not None and new.logprob is not None and base.token == new.token
    ln_ratio = base.logprob - new.logprob if known else 0.0  # type: ignore[operator]
    delta_p = math.exp(new.logprob) - math.exp(base.logprob) if known else 0.0  # type: ignore[arg-type]
    return Row(
        document, position, max(kld, 0.0), agrees, margin, delta_p, ln_ratio, known, False,
        _same_draws([*shared, ""], p, q, f"{document}@{position}"), (_entropy(p), _entropy(q)),
        dict(base.top) == dict(new.top),
    )  # fmt: skip


def _entropy(p: list[float]) -> float:
    return -sum(value * math.log(value) for value in p)


def _same_draws(tokens: list[str], p: list[float], q: list[float], place: str) -> int:
    uniform = [(crc32(f"{place}|{token}".encode()) + 0.5) / 2**32 for token in tokens]
    noise = [-math.log(-math.log(value)) for value in uniform]

    def draw(side: list[float], temperature: float) -> int:
        return max(range(len(side)), key=lambda i: math.log(side[i]) / temperature + noise[i])

    return sum(draw(p, t) == draw(q, t) for t in TEMPERATURES)
