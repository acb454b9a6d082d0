"""Ruling: what has been found about one candidate so far, and the verdict written from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from kernelwright.kernels.build import BuildResult
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import op_of
from kernelwright.profiles.ceilings import last_level_cache_bytes
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.profile import Ceilings
from kernelwright.profiles.roofline import bandwidth_at
from kernelwright.sandbox.attempts import Attempt
from kernelwright.sandbox.cell import RunnerFailed
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key
from kernelwright.sandbox.environment import describe_environment, harness_digest
from kernelwright.sandbox.isolation import Level
from kernelwright.sandbox.stats import Interval, Launch
from kernelwright.sandbox.verdict import Comparison, Decision, Evaluation, Outcome, Samples, Status, Verdict

ROOFLINE_SLACK = 0.95
FAILURE: dict[str, tuple[str, Status]] = {
    "crashed": ("it crashed", "RUNTIME_ERROR"),
    "hung": ("it did not finish in time", "TIMEOUT"),
    "refused": ("it could not be loaded", "RUNTIME_ERROR"),
    "misbehaved": ("it rang the bell out of turn", "RUNTIME_ERROR"),
}


@dataclass(slots=True)
class Ruling:
    candidate: Candidate
    phase: str
    started: float
    controls: Controls = field(default_factory=Controls)
    outcome: Outcome | None = None
    reason: str = ""
    binary: str | None = None
    isolation: Level = "L0"
    isolation_facts: dict[str, str] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)
    comparison: Comparison | None = None
    keys: list[str] = field(default_factory=list)
    packed_bytes: int = 0
    load_s: float = 0.0
    worked_s: float = 0.0
    launches: list[Samples] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    labels: tuple[str, ...] = ()
    tripwires: tuple[str, ...] = ()
    attempt: Attempt | None = None
    beside: list[tuple[Sequence[float], Sequence[float]]] = field(default_factory=list)
    """For each launch the incumbent's times alone and beside the candidate."""

    @property
    def settled(self) -> bool:
        return self.outcome is not None

    def settle(self, outcome: Outcome, reason: str) -> None:
        """Fix outcome and reason; the first one stands."""
        if self.outcome is None:
            self.outcome, self.reason = outcome, reason

    def settle_failure(self, failure: RunnerFailed) -> None:
        reason, status = FAILURE[failure.how]
        self.evaluations.append(Evaluation(workload="run", status=status, log=failure.log[-2000:]))
        self.settle("invalid", reason)

    def settle_build(self, built: BuildResult) -> None:
        status: Status = "TIMEOUT" if built.status == "TIMEOUT" else "COMPILE_ERROR"
        self.evaluations.append(Evaluation(workload="build", status=status, log=built.log[-4000:]))
        self.settle("invalid", "it does not compile" if status == "COMPILE_ERROR" else "it takes too long to compile")

    def saw_isolation(self, level: Level, facts: dict[str, str]) -> None:
        """Note the level of one launch; the verdict carries the lowest."""
        if not self.isolation_facts or level < self.isolation:
            self.isolation, self.isolation_facts = level, facts

    def note(self, rule: str, found: float | str, allowed: float | str, passed: bool) -> bool:
        """Record one rule that was applied; return whether it passed."""
        self.decisions.append(Decision(rule=rule, found=found, allowed=allowed, passed=passed))
        return passed

    def compare(self, interval: Interval, launches: Sequence[Launch], floor: float, confidence: float) -> None:
        incumbent = np.concatenate([np.asarray(launch.incumbent) for launch in launches])
        candidate = np.concatenate([np.asarray(launch.candidate) for launch in launches])
        self.launches = [Samples(**asdict(launch)) for launch in launches]
        self.comparison = Comparison(
            ratio=interval.ratio, low=interval.low, high=interval.high, confidence=confidence, n=interval.n,
            launches=interval.launches, floor=floor, incumbent_us=float(np.median(incumbent)) * 1e6,
            candidate_us=float(np.median(candidate)) * 1e6, level="kernel",
        )  # fmt: skip

    def check_roofline(self, problem: Problem, ceilings: Ceilings | None, ring: int) -> None:
        """Settle `suspect` when the candidate is faster than its data can be moved or its work be done.

        `ring`: weight sets that a timed batch walks; their bytes decide which cache they can be served from.
        """
        if ceilings is None or self.comparison is None:
            return
        cost = op_of(problem.definition).cost(problem.definition, dict(problem.timed_axes))
        level, bandwidth = bandwidth_at(cost.bytes * ring, ceilings, last_level_cache_bytes())
        least_us = max(cost.bytes / bandwidth, cost.flops / ceilings.fp32_flops_per_s) * 1e6
        allowed = ROOFLINE_SLACK * least_us
        if not self.note(
            f"roofline ({level})", self.comparison.candidate_us, allowed, self.comparison.candidate_us >= allowed
        ):
            self.settle("suspect", "faster than this machine can move the data or do the work")


def write_verdict(problem: Problem, ruling: Ruling, controls: Controls, weights_key: Key | None = None) -> Verdict:
    """Return the verdict of a settled ruling. A switched-off control is named and takes the isolation level down."""
    off = controls.switched_off()
    facts = {**ruling.isolation_facts, **({"controls_off": ", ".join(off)} if off else {})}
    phase: Literal["search", "confirm"] = "confirm" if ruling.phase == "confirm" else "search"
    return Verdict(
        problem=digest_of(problem),
        candidate=digest_of(ruling.candidate),
        phase=phase,
        outcome=ruling.outcome or "inconclusive",
        reason=ruling.reason or "nothing was measured",
        isolation="L0" if off else ruling.isolation,
        isolation_facts=facts,
        binary=ruling.binary,
        evaluations=tuple(ruling.evaluations),
        comparison=ruling.comparison,
        launches=tuple(ruling.launches),
        decisions=tuple(ruling.decisions),
        labels=ruling.labels,
        tripwires=ruling.tripwires,
        environment=describe_environment(),
        harness=harness_digest(),
        prepare_ms=ruling.load_s * 1e3 if ruling.load_s else None,
        packed_bytes=ruling.packed_bytes,
        key=",".join(ruling.keys) or None,
        weights_key=weights_key.secret.hex() if weights_key else None,
        worked_s=ruling.worked_s,
        seconds=time.monotonic() - ruling.started,
    )
