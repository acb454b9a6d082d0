"""Evaluation, Comparison and Verdict: what the judge says, and on what evidence."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, model_validator

Status = Literal[
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"
]
Outcome = Literal["faster", "slower", "inconclusive", "incorrect", "suspect", "invalid", "unmeasured"]


class Correctness(BaseModel, frozen=True, extra="forbid"):
    max_relative_error: float
    max_absolute_error: float
    extra: dict[str, Any] = {}


class Evaluation(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Result on one workload; FlashInfer-Trace's statuses and blocks."""

    workload: str
    """uuid of the Workload, or the name of a hidden case."""
    status: Status
    log: str = ""
    correctness: Correctness | None = None


class Comparison(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Paired timing, incumbent time ÷ candidate time (> 1 is better)."""

    ratio: float
    """exp of the median log-ratio over the pairs."""
    low: float
    high: float
    """Bootstrap interval at `confidence`, resampled by process launch."""
    confidence: float = 0.95
    n: int
    """Pairs."""
    launches: int
    floor: float
    """A/A floor of this host: 97.5th percentile of |ratio - 1| of the incumbent against itself."""
    incumbent_us: float
    candidate_us: float
    """Median time of one call."""
    level: Literal["kernel", "engine"]


class Samples(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Raw paired times of one launch: the evidence a comparison is computed from."""

    incumbent: tuple[float, ...]
    """Seconds per call."""
    candidate: tuple[float, ...]
    incumbent_waited: tuple[float, ...] = ()
    """What its threads waited for a processor, summed over them, seconds per call; empty in older verdicts."""
    candidate_waited: tuple[float, ...] = ()


class Decision(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One rule that was applied: what was found, what was allowed, whether it passed."""

    rule: str
    found: float | str
    allowed: float | str
    passed: bool


class Verdict(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    schema_version: Literal[1] = 1
    problem: str
    """Digest of the Problem."""
    candidate: str
    """Digest of the Candidate."""
    phase: Literal["search", "confirm"]
    outcome: Outcome
    reason: str
    """One coarse sentence; all that a proposer is told."""
    isolation: Literal["L0", "L1", "L2", "L3", "L4"]
    """Measured from outside; a patch needs L3."""
    isolation_facts: dict[str, str] = {}
    binary: str | None = None
    """SHA-256 of the shared object that was judged."""
    evaluations: tuple[Evaluation, ...] = ()
    comparison: Comparison | None = None
    launches: tuple[Samples, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """In the order they were made; the last one that did not pass decided."""
    labels: tuple[str, ...] = ()
    """Where the result comes from: `custom`, `framework-wrap`, `vendor-wrap`. Provenance, not merit."""
    tripwires: tuple[str, ...] = ()
    """What the screens noticed; it raises scrutiny and decides nothing."""
    environment: dict[str, str] = {}
    """Machine, compiler and versions it was taken with."""
    harness: str = ""
    """Digest of the judge's own source."""
    prepare_ms: float | None = None
    packed_bytes: int = 0
    key: str | None = None
    """The inputs' keys, one for each launch, revealed after the verdict, so that it can be replayed."""
    weights_key: str | None = None
    """The key of the weight sets that were generated beside the model's own."""
    worked_s: float = 0.0
    """Of `seconds`, those in which the candidate worked on calls."""
    seconds: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _drop_the_mark_of_earlier_judges(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if k != "provisional"} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _faster_needs_a_comparison(self) -> Verdict:
        if self.outcome == "faster" and (self.comparison is None or self.comparison.low <= 1.0):
            raise ValueError("`faster` needs a comparison whose interval lies above 1")
        return self

    @property
    def accepted(self) -> bool:
        """Whether this verdict allows a patch: `faster`, in confirm, at L3 or better."""
        return self.outcome == "faster" and self.phase == "confirm" and self.isolation in ("L3", "L4")
