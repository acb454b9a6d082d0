"""Statistics of paired timing. Pure: numbers in, numbers out.

Method: log-ratio of each pair, median over pairs, percentile interval of a block bootstrap that resamples launches
(then pairs inside them), because repetition matters most at the level where variation arises (Kalibera and Jones,
"Rigorous benchmarking in reasonable time", ISMM 2013). Decision: the interval's low end must beat 1 + max(1 %, A/A
floor), also without the time for which the arms waited for a processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
LEAST_GAIN = 0.01
UNFIT_FLOOR = 0.05
LEAST_DRIFT = 0.5
LEAST_HOPE, HOPE, NARROW = 0.99, 1.005, 1.6
MEDIANS_FROM = 3
"""From so many launches on, their medians say how much launches differ."""
STRAY = 0.8
"""A single launch may be off by so much, whatever the kernels: one that shows less than HOPE is not the last word."""
MISSED_GAIN = 0.03
"""A first launch that leaves so much open is followed by others, if it was not below LEAST_HOPE."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Paired times of one launch of both arms, in seconds per call; pair i is (incumbent[i], candidate[i])."""

    incumbent: tuple[float, ...]
    candidate: tuple[float, ...]
    incumbent_waited: tuple[float, ...] = ()
    candidate_waited: tuple[float, ...] = ()
    """What its threads waited for a processor meanwhile, summed over them, seconds per call; empty: nobody looked."""

    def without_waits(self) -> Launch:
        """Return the launch as if no thread had ever waited for a processor, nor another thread for that one.

        At least a twentieth of each time is left, as waits of several threads can add up to more than the time.
        """
        if not self.incumbent_waited:
            return self
        return Launch(_free(self.incumbent, self.incumbent_waited), _free(self.candidate, self.candidate_waited))

    def log_ratios(self) -> NDArray[np.float64]:
        """Return log(incumbent / candidate) of each pair: above 0 the candidate is faster."""
        ratios: NDArray[np.float64] = np.asarray(self.incumbent) / np.asarray(self.candidate)
        return np.asarray(np.log(ratios))


def _free(times: Sequence[float], waited: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(t - w, t / 20) for t, w in zip(times, waited, strict=True))


@dataclass(frozen=True, slots=True)
class Interval:
    ratio: float
    low: float
    high: float
    n: int
    launches: int


def bootstrap(launches: Sequence[Launch], *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Return the median ratio and its interval. Raises ValueError without a pair.

    Two-stage block bootstrap: launches with replacement, then pairs within each; with one launch, pairs alone.
    """
    blocks = [launch.log_ratios() for launch in launches if launch.incumbent]
    if not blocks:
        raise ValueError("no pairs to compare")
    pooled = np.concatenate(blocks)
    medians = np.median(_resample(blocks, np.random.default_rng(seed), len(blocks)), axis=1)
    tail = (1 - confidence) / 2 * 100
    low, high = np.percentile(medians, [tail, 100 - tail])
    middle = float(np.median(pooled))
    low, high = min(float(low), middle), max(float(high), middle)
    return Interval(float(np.exp(middle)), float(np.exp(low)), float(np.exp(high)), len(pooled), len(blocks))


def _resample(
    blocks: list[NDArray[np.float64]], random: np.random.Generator, launches: int, pairs: int | None = None
) -> NDArray[np.float64]:
    """Return [RESAMPLES, launches * pairs] resampled log-ratios; `pairs` is the shortest block's number by default."""
    length = min(len(b) for b in blocks)
    table = np.stack([b[:length] if len(b) == length else random.permutation(b)[:length] for b in blocks])
    which = random.integers(0, len(blocks), (RESAMPLES, launches))
    within = random.integers(0, length, (RESAMPLES, launches, pairs or length))
    return table[which[:, :, None], within].reshape(RESAMPLES, -1)


def calibrate_floor(found: Sequence[Launch], *, launches: int, pairs: int, seed: int = 0) -> float:
    """Return the A/A floor: the 97.5th percentile of |median ratio - 1| of the incumbent against itself.

    From three launches on, what a judgement of so many `launches` would say is drawn from their medians, which hold the
    noise of pairs and of launches, each once, and as the median of them: one launch that is far off moves a judgement,
    the median of all pairs, as little; from fewer, from the `pairs` that each launch of a judgement has. Each
    launch counts as it is and with its arms exchanged, as both are the incumbent.
    """
    random = np.random.default_rng(seed)
    once = [launch.log_ratios() for launch in found]
    both = [*once, *(-block for block in once)]
    if len(once) >= MEDIANS_FROM:
        medians = np.asarray([np.median(block) for block in both])
        said = np.median(medians[random.integers(0, len(medians), (RESAMPLES, launches))], axis=1)
    else:
        said = np.median(_resample(both, random, launches, pairs), axis=1)
    return float(np.percentile(np.abs(np.exp(said) - 1), 97.5))


def is_narrow(launches: Sequence[Launch]) -> bool:
    """Return whether what a first launch shows is too small for one launch to decide, and too large to be left."""
    if not launches:
        return False
    interval = bootstrap(launches)
    least = LEAST_HOPE if interval.high > 1 + MISSED_GAIN else HOPE
    return least < interval.ratio < NARROW


def is_doubtful(launches: Sequence[Launch]) -> bool:
    """Return whether a first launch shows a loss that may be the launch's own: another one must say so, too."""
    return bool(launches) and not is_narrow(launches) and STRAY < bootstrap(launches).ratio < HOPE


def decide(interval: Interval, floor: float) -> tuple[Literal["faster", "slower", "inconclusive"], str]:
    """Return the outcome and one coarse sentence. `floor` is this host's A/A floor."""
    need = 1 + max(LEAST_GAIN, floor)
    if interval.low > need:
        return "faster", f"faster than the incumbent by more than {need - 1:.1%}"
    if interval.high < 1 / need:
        return "slower", f"slower than the incumbent by more than {need - 1:.1%}"
    if floor > UNFIT_FLOOR:
        return "inconclusive", f"this machine is too noisy to tell: the incumbent differs from itself by {floor:.1%}"
    return "inconclusive", f"not faster than the incumbent by more than {need - 1:.1%} beyond doubt"


@dataclass(frozen=True, slots=True)
class Conclusion:
    interval: Interval
    outcome: Literal["faster", "slower", "inconclusive"]
    reason: str
    need: float
    """What the low end of the interval must exceed."""
    low_without_waits: float
    """That low end if neither had ever waited for a processor."""


def conclude(launches: Sequence[Launch], floor: float, confidence: float) -> Conclusion:
    """Compare and decide. A win must stand twice: as measured, and with both arms' waits for a processor taken off.

    Where others use the processors one arm may sit on a busy one for seconds. A candidate that waits for itself gains
    nothing, as its time counts, too. Raises ValueError without a pair.
    """
    interval = bootstrap(launches, confidence=confidence)
    outcome, reason = decide(interval, floor)
    need = 1 + max(LEAST_GAIN, floor)
    low = interval.low
    if any(launch.incumbent_waited for launch in launches):
        low = bootstrap([launch.without_waits() for launch in launches], confidence=confidence).low
    if outcome == "faster" and low <= need:
        outcome, reason = "inconclusive", "waits for a busy processor explain what was gained: try it when all is quiet"
    return Conclusion(interval, outcome, reason, need, low)


def find_drift(launches: Sequence[tuple[Sequence[float], Sequence[float]]], floor: float) -> float:
    """Return by how much the incumbent was slower beside the candidate than alone, 0 when within what is allowed.

    Each launch gives its times (seconds) alone, before the candidate was loaded and after it was gone, and beside it.
    The median over launches of the rise of the median counts, as a machine may change pace in one of them. Allowed is
    the larger of 50 % and three times the A/A floor.
    """
    both = [(alone, beside) for alone, beside in launches if len(alone) and len(beside)]
    rises = [float(np.median(beside) / np.median(alone)) - 1 for alone, beside in both]
    rise = float(np.median(rises)) if rises else 0.0
    return rise if rise > max(LEAST_DRIFT, 3 * floor) else 0.0
