"""A scripted stand-in for the judge: it answers what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.kernels.candidate import Candidate
from kernelwright.profiles.digest import digest_of
from kernelwright.sandbox.verdict import Comparison, Outcome, Verdict

PROBLEM = "0" * 64


def verdict(candidate: Candidate, phase: str, outcome: Outcome, ratio: float | None = None) -> Verdict:
    timed = None
    if ratio is not None:
        timed = Comparison(
            ratio=ratio, low=ratio * 0.97, high=ratio * 1.03, n=12, launches=5 if phase == "confirm" else 1,
            floor=0.01, incumbent_us=100.0, candidate_us=100.0 / ratio, level="kernel",
        )  # fmt: skip
    return Verdict(
        problem=PROBLEM, candidate=digest_of(candidate), phase=phase, outcome=outcome, reason=f"scripted {outcome}",
        isolation="L3", comparison=timed,
    )  # fmt: skip


class ScriptedBench:
    """`speed(candidate)` is its true ratio; None means it is wrong."""

    def __init__(self, speed: Callable[[Candidate], float | None]) -> None:
        self._speed = speed
        self.asked: list[tuple[str, str]] = []

    def search(self, candidate: Candidate) -> Verdict:
        return self._answer(candidate, "search")

    def confirm(self, candidate: Candidate) -> Verdict:
        return self._answer(candidate, "confirm")

    def _answer(self, candidate: Candidate, phase: str) -> Verdict:
        self.asked.append((phase, digest_of(candidate)))
        ratio = self._speed(candidate)
        if ratio is None:
            return verdict(candidate, phase, "incorrect")
        return verdict(candidate, phase, "faster" if ratio * 0.97 > 1.01 else "inconclusive", ratio)
