"""Result: what the judge said about one candidate, in words every format's result file can be written from.

All times come from the judge's own clock; nothing here was said by the process that ran the candidate.
"""

from __future__ import annotations

import statistics
from typing import Any, Literal

from pydantic import BaseModel

Status = Literal[
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"
]


class Judged(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One evaluation."""

    workload: str
    """uuid of a workload, or the name of a case of the judge's own."""
    status: Status
    log: str = ""
    max_relative_error: float | None = None
    max_absolute_error: float | None = None


class Result(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    candidate: str
    """Name of the solution."""
    outcome: str
    """The verdict's outcome."""
    reason: str
    evaluations: tuple[Judged, ...]
    latency_ms: float | None = None
    """Median time of one call at the timed shape; None when nothing was timed."""
    reference_ms: float | None = None
    """The same of the incumbent."""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    num_pairs: int = 0
    candidate_ms: tuple[float, ...] = ()
    """Raw times, where the verdict keeps them."""
    incumbent_ms: tuple[float, ...] = ()
    hardware: str
    libs: dict[str, str] = {}
    timestamp: str
    verdict: str
    """Digest of the verdict."""
    isolation: str
    extra: dict[str, Any] = {}

    @property
    def correct(self) -> bool:
        """Whether every check passed; a candidate that was not run, or is suspect, is not called correct."""
        return self.outcome in ("faster", "slower", "inconclusive")

    def stats(self, samples: tuple[float, ...]) -> dict[str, float]:
        """Return mean, std, min, max and median of `samples` in milliseconds; nothing when there are none."""
        if len(samples) < 2:
            return {}
        return {
            "mean": statistics.fmean(samples), "std": statistics.stdev(samples),
            "min": min(samples), "max": max(samples), "median": statistics.median(samples),
        }  # fmt: skip

    def status(self) -> Status:
        """Return the one status a format with FlashInfer-Trace's words gives the whole candidate."""
        if self.correct:
            return "PASSED"
        failed = [e for e in self.evaluations if e.status != "PASSED"]
        if failed:
            return failed[-1].status
        return "INCORRECT_NUMERICAL" if self.outcome == "incorrect" and self.worst() else "RUNTIME_ERROR"

    def worst(self) -> tuple[float, float] | None:
        """Return the largest relative and absolute error of all evaluations that have any."""
        known = [e for e in self.evaluations if e.max_relative_error is not None and e.max_absolute_error is not None]
        if not known:
            return None
        return max(e.max_relative_error or 0.0 for e in known), max(e.max_absolute_error or 0.0 for e in known)
