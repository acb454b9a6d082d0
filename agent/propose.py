"""Proposers: who writes candidates. All share one history, and are told nothing but coarse verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.target import Target
from kernelwright.sandbox.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate and what the judge said of it."""

    candidate: Candidate
    verdict: Verdict

    @property
    def ratio(self) -> float:
        """Search ratio where the candidate was right and timed, else 0."""
        right = self.verdict.outcome in ("faster", "slower", "inconclusive")
        return self.verdict.comparison.ratio if right and self.verdict.comparison else 0.0


@dataclass
class History:
    """What was tried on one problem, in order. Grows; entries do not change."""

    tried: list[Tried] = field(default_factory=list)

    def add(self, candidate: Candidate, verdict: Verdict) -> None:
        self.tried.append(Tried(candidate, verdict))

    def knows(self, candidate: Candidate) -> bool:
        digest = digest_of(candidate)
        return any(digest_of(entry.candidate) == digest for entry in self.tried)

    def ranked(self) -> list[Tried]:
        """Right and timed candidates, fastest first."""
        return sorted((t for t in self.tried if t.ratio > 0), key=lambda t: t.ratio, reverse=True)


class Proposer(Protocol):
    name: str

    def propose(self, problem: Problem, target: Target, history: History) -> Candidate | None:
        """Return the next candidate worth judging, or None when this proposer has nothing more to say."""
        ...
