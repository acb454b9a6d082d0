"""Events survive the trip through a ledger row, and rows that are not ours are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kernelwright.agent import events
from kernelwright.agent.events import EVENTS, Event, parse_event, serialise_event
from kernelwright.profiles.errors import BrokenInput

EXAMPLES: list[Event] = [
    events.SessionStarted(at=1.5),
    events.SessionResumed(),
    events.PhaseStarted(phase="profile", budget_s=30.0),
    events.PhaseStarted(phase="report"),
    events.PhaseEnded(phase="profile", seconds=12.25),
    events.ProfileTaken(),
    events.TargetsRanked(),
    events.ProblemPosed(definition="q4_1_linear_n960_k576"),
    events.CandidateProposed(definition="d", candidate="c" * 64, proposer="templates", author="q4_1_linear"),
    events.CandidateJudged(
        definition="d",
        candidate="c" * 64,
        phase="search",
        outcome="faster",
        reason="faster",
        ratio=2.0,
        low=1.9,
        high=2.1,
    ),
    events.CandidateJudged(definition="d", candidate="c" * 64, phase="confirm", outcome="incorrect", reason="row 3"),
    events.KernelAccepted(definition="d", candidate="c" * 64, ratio=2.0),
    events.GateFinished(passed=True),
    events.PatchCommitted(branch="kernels/1", commit="a" * 40),
    events.ReportWritten(path="report.html"),
    events.ProgressMade(phase="solve:d", done=3, total=48, text="unroll 4"),
    events.SessionEnded(status="done", reason="the budget is spent"),
]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_round_trip(event: Event) -> None:
    assert parse_event(*serialise_event(event)) == event


def test_every_kind_has_an_example() -> None:
    assert {event.kind for event in EXAMPLES} == set(EVENTS)


def test_events_are_frozen() -> None:
    with pytest.raises(ValidationError):
        EXAMPLES[0].at = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("KernelDreamt", "{}"),
        ("ProblemPosed", "{}"),
        ("ProblemPosed", '{"definition": "d", "more": 1}'),
        ("ProblemPosed", "{half"),
        ("ProblemPosed", "[1]"),
    ],
)
def test_foreign_rows_are_refused(kind: str, data: str) -> None:
    with pytest.raises(BrokenInput, match=kind):
        parse_event(1.0, kind, data)
