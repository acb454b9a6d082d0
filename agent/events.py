"""Events: past-tense facts, the only thing a front end hears from a session.

The kind of an event is the name of its class. In the ledger an event is a row (at, kind, data); `serialise_event`
and `parse_event` go between the two.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.verdict import Outcome

SessionStatus = Literal["running", "done", "interrupted", "failed"]


class Event(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    at: float = Field(default_factory=time.time)
    """Unix seconds."""

    @property
    def kind(self) -> str:
        """The name of the event's class."""
        return type(self).__name__


class SessionStarted(Event, frozen=True):
    pass


class SessionResumed(Event, frozen=True):
    pass


class PhaseStarted(Event, frozen=True, use_attribute_docstrings=True):
    phase: str
    """Name of the step, e.g. `profile` or `solve:q4_1_linear_n960_k576`."""
    budget_s: float | None = None
    """Wall time this phase may take, in seconds; None where it has no limit of its own."""


class PhaseEnded(Event, frozen=True):
    phase: str
    seconds: float


class ProfileTaken(Event, frozen=True):
    pass


class TargetsRanked(Event, frozen=True):
    pass


class ProblemPosed(Event, frozen=True):
    definition: str


class CandidateProposed(Event, frozen=True):
    definition: str
    candidate: str
    proposer: str
    author: str


class CandidateJudged(Event, frozen=True):
    definition: str
    candidate: str
    phase: Literal["search", "confirm"]
    outcome: Outcome
    reason: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


class KernelAccepted(Event, frozen=True):
    definition: str
    candidate: str
    ratio: float


class GateFinished(Event, frozen=True):
    passed: bool
    reason: str = ""


class PatchCommitted(Event, frozen=True):
    branch: str
    commit: str


class ReportWritten(Event, frozen=True):
    path: str


class ProgressMade(Event, frozen=True):
    phase: str
    done: int
    total: int
    text: str = ""


class SessionEnded(Event, frozen=True):
    status: SessionStatus
    reason: str = ""


EVENTS: dict[str, type[Event]] = {
    event.__name__: event
    for event in (
        SessionStarted, SessionResumed, PhaseStarted, PhaseEnded, ProfileTaken, TargetsRanked, ProblemPosed,
        CandidateProposed, CandidateJudged, KernelAccepted, GateFinished, PatchCommitted, ReportWritten, ProgressMade,
        SessionEnded,
    )
}  # fmt: skip


def serialise_event(event: Event) -> tuple[float, str, str]:
    """Return the row of `event`: unix seconds, kind, and its other fields as JSON with sorted keys."""
    data = event.model_dump(mode="json", exclude={"at"})
    return event.at, event.kind, json.dumps(data, sort_keys=True, separators=(",", ":"))


def parse_event(at: float, kind: str, data: str) -> Event:
    """Return the event of a row; raises BrokenInput when the row is not one of ours."""
    if kind not in EVENTS:
        raise BrokenInput(
            f"the ledger holds an event of unknown kind {kind!r}",
            "It was written by another version of kernelwright; open it with that one.",
        )
    try:
        fields: dict[str, Any] = json.loads(data)
        return EVENTS[kind](at=at, **fields)
    except (ValidationError, TypeError, json.JSONDecodeError) as error:
        raise BrokenInput(
            f"the ledger holds a {kind} event that does not parse: {error}", "The file is damaged."
        ) from error
