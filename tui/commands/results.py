"""From a verdict to the words that result files of other tools are written from."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.kernels.candidate import Candidate
    from kernelwright.kernels.formats.result import Result
    from kernelwright.sandbox.verdict import Verdict


def result_of(verdict: Verdict, candidate: Candidate) -> Result:
    """Return the verdict as a Result; all its times are the judge's own, in milliseconds."""
    from kernelwright.kernels.formats.imported import solution_name
    from kernelwright.kernels.formats.result import Judged, Result
    from kernelwright.kernels.isa import cpu_name
    from kernelwright.profiles.digest import digest_of

    timed = verdict.comparison
    evaluations = tuple(
        Judged(
            workload=e.workload, status=e.status, log=e.log,
            max_relative_error=e.correctness.max_relative_error if e.correctness else None,
            max_absolute_error=e.correctness.max_absolute_error if e.correctness else None,
        )
        for e in verdict.evaluations
    )  # fmt: skip
    return Result(
        candidate=solution_name(candidate, candidate.author),
        outcome=verdict.outcome, reason=verdict.reason, evaluations=evaluations,
        latency_ms=timed.candidate_us / 1e3 if timed else None,
        reference_ms=timed.incumbent_us / 1e3 if timed else None,
        ratio=timed.ratio if timed else None, low=timed.low if timed else None, high=timed.high if timed else None,
        num_pairs=timed.n if timed else 0,
        candidate_ms=tuple(s * 1e3 for launch in verdict.launches for s in launch.candidate),
        incumbent_ms=tuple(s * 1e3 for launch in verdict.launches for s in launch.incumbent),
        hardware=cpu_name(), libs={"torch": version("torch"), "kernelwright": version("kernelwright")},
        timestamp=datetime.now(UTC).isoformat(timespec="seconds"), verdict=digest_of(verdict),
        isolation=verdict.isolation, extra={"labels": list(verdict.labels), "harness": verdict.harness},
    )  # fmt: skip
