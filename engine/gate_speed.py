"""Speed of patched against incumbent engine, by the HTTP client's clock: paired, in ABBA order, over several launches.

Seconds per token are paired on the same fresh prompt. While one engine is measured the other one is stopped
(SIGSTOP); one lock keeps all timing on this machine apart. Statistics: sandbox/stats.py. The incumbent's two turns of
each ABBA, against each other, give this host's A/A floor.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol

from pydantic import BaseModel

from kernelwright.engine.client import EngineClient
from kernelwright.engine.load import Measurement, measure_decode, measure_prefill
from kernelwright.sandbox.stats import Launch, bootstrap, calibrate_floor
from kernelwright.sandbox.timing import timing_lock

DECODE_PROMPT, DECODE_NEW, PREFILL_PROMPT = 128, 128, 512
NOT_SLOWER = 0.97

Kind = Literal["decode", "prefill"]


class Measured(Protocol):
    """An engine that can be asked and stopped."""

    def client(self, timeout_s: float = ...) -> EngineClient: ...
    def stop(self) -> None: ...
    def resume(self) -> None: ...


class EngineComparison(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One kind of request on both engines. `ratio` is patched ÷ incumbent speed (> 1 is better)."""

    kind: Kind
    incumbent_tok_s: float
    """Median over the measurements, tokens per second."""
    patched_tok_s: float
    ratio: float
    low: float
    high: float
    """95 % bootstrap interval, resampled by launch."""
    n: int
    """Pairs."""
    launches: int
    floor: float
    """97.5th percentile of |ratio − 1| of the incumbent against itself, in this very run."""
    prompt_tokens: int
    new_tokens: int
    pairs: tuple[tuple[tuple[float, float], ...], ...]
    """Seconds per token of each pair (incumbent, patched), launch by launch."""


@dataclass(slots=True)
class Timings:
    """Seconds per token, launch by launch."""

    launches: dict[Kind, list[Launch]] = field(default_factory=lambda: {"decode": [], "prefill": []})
    twice: dict[Kind, list[Launch]] = field(default_factory=lambda: {"decode": [], "prefill": []})
    """The incumbent's first turn of each ABBA against its second."""

    def compare(self, kind: Kind) -> EngineComparison:
        """Return the comparison of `kind` over all launches. Raises ValueError when nothing was measured."""
        launches = self.launches[kind]
        interval = bootstrap(launches)
        base = [1 / s for launch in launches for s in launch.incumbent]
        new = [1 / s for launch in launches for s in launch.candidate]
        return EngineComparison(
            kind=kind,
            incumbent_tok_s=median(base),
            patched_tok_s=median(new),
            ratio=interval.ratio,
            low=interval.low,
            high=interval.high,
            n=interval.n,
            launches=interval.launches,
            floor=calibrate_floor(
                self.twice[kind], launches=interval.launches, pairs=-(-interval.n // interval.launches)
            ),
            prompt_tokens=DECODE_PROMPT if kind == "decode" else PREFILL_PROMPT,
            new_tokens=DECODE_NEW if kind == "decode" else 1,
            pairs=tuple(tuple(zip(launch.incumbent, launch.candidate, strict=True)) for launch in launches),
        )


def time_launch(
    timings: Timings, incumbent: Measured, patched: Measured, rounds: dict[Kind, int], on_pair: Callable[[], None]
) -> None:
    """Measure `rounds` ABBA rounds (two pairs each) of each kind on one launch of both engines, after a warm-up."""
    arms = (incumbent, patched)
    with timing_lock():
        patched.stop()
        try:
            for kind, count in rounds.items():
                _turn(arms, 0, kind, 0, warm=True)
                _turn(arms, 1, kind, 0, warm=True)
                seconds: tuple[list[float], list[float]] = ([], [])
                for _ in range(count):
                    _abba(arms, kind, seconds, on_pair)
                base = seconds[0]
                timings.launches[kind].append(Launch(tuple(base), tuple(seconds[1])))
                timings.twice[kind].append(Launch(tuple(base[0::2]), tuple(base[1::2])))
        finally:
            for arm in arms:
                arm.resume()


def _abba(
    arms: tuple[Measured, Measured], kind: Kind, seconds: tuple[list[float], list[float]], on_pair: Callable[[], None]
) -> None:
    first = secrets.randbelow(2)  # not known to an engine in advance
    for order in ((first, 1 - first), (1 - first, first)):
        seed = secrets.randbits(62)
        taken = {which: _turn(arms, which, kind, seed) for which in order}
        for which in (0, 1):
            seconds[which].append(taken[which])
        on_pair()


def _turn(arms: tuple[Measured, Measured], which: int, kind: Kind, seed: int, *, warm: bool = False) -> float:
    """Measure one request on one arm while the other is stopped; return seconds per token."""
    arms[1 - which].stop()
    arms[which].resume()
    with arms[which].client() as client:
        client.card()
        (measured,) = _measure(client, kind, seed, warm)
    return 1 / measured.tok_s


def _measure(client: EngineClient, kind: Kind, seed: int, warm: bool) -> Sequence[Measurement]:
    if kind == "prefill":
        return measure_prefill(client, 64 if warm else PREFILL_PROMPT, 1, seed=seed)
    return measure_decode(client, DECODE_PROMPT, 8 if warm else DECODE_NEW, 1, seed=seed)
