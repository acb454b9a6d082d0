"""Solve one problem: search with every proposer, confirm the best, accept it or say why not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kernelwright.agent.events import KernelAccepted
from kernelwright.agent.judging import judge, recorded_history
from kernelwright.agent.propose import History, Proposer, Tried
from kernelwright.agent.session import Session
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.target import Target
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.verify import Bench

MAX_CONFIRMS = 2
# Searching stops early enough to leave room for a confirm: five launches, each a third to a half of a first search,
# which starts the incumbent, too. Seen on two cores: 22 s and 37 s, 30 s and 72 s.
CONFIRM_SECONDS, CONFIRM_SHARE = 45.0, 2.5


def solve(
    session: Session, bench: Bench, problem: Problem, target: Target, proposers: Sequence[Proposer], seconds: float
) -> dict[str, Any]:
    """Return the step's result: accepted candidate and verdict digests (None if none), and what was tried.

    `seconds` is the wall time for search and confirm together; at least one search and one confirm are made.
    """
    deadline = time.monotonic() + seconds
    history = recorded_history(session, problem.definition.name)
    _run_interrupted(session, bench, problem, history)
    _search(session, bench, problem, target, proposers, history, deadline)
    accepted = _confirm(session, bench, history)
    result = _result(history, accepted)
    if accepted is not None:
        candidate, verdict = accepted
        result |= {"candidate": session.ledger.put(candidate), "verdict": session.ledger.put(verdict)}
        assert verdict.comparison is not None  # `accepted` implies it
        session.emit(
            KernelAccepted(
                definition=problem.definition.name, candidate=result["candidate"], ratio=verdict.comparison.ratio
            )
        )
    return result


def _run_interrupted(session: Session, bench: Bench, problem: Problem, history: History) -> None:
    """Take the verdict that was in flight when an earlier run was killed, whatever the search may find since."""
    for attempt in session.ledger.attempts(problem.definition.name, state="interrupted"):
        candidate = session.ledger.load(attempt.candidate, Candidate)
        verdict = judge(session, bench, candidate, attempt.phase)
        if attempt.phase == "search":
            history.add(candidate, verdict)


def _search(
    session: Session,
    bench: Bench,
    problem: Problem,
    target: Target,
    proposers: Sequence[Proposer],
    history: History,
    deadline: float,
) -> None:
    """Ask the proposers in turn until only a confirm's time or no idea is left; at least one candidate is judged."""
    phase = f"solve:{problem.definition.name}"
    live, lasted, reserve = list(proposers), 0.0, CONFIRM_SECONDS
    while live and session.budget.exhausted() is None:
        for proposer in tuple(live):
            started = time.monotonic()
            if history.tried and started + lasted > deadline - reserve:
                return
            candidate = proposer.propose(problem, target, history)
            if candidate is None or history.knows(candidate):
                live.remove(proposer)
                continue
            history.add(candidate, judge(session, bench, candidate, "search"))
            best = history.ranked()[:1]
            text = f"best {best[0].ratio:.2f}x by {best[0].candidate.author}" if best else "nothing right yet"
            session.progress(phase, len(history.tried), len(history.tried) + len(live), text)
            if proposer.name == "templates":  # the first one also starts the incumbent, and a model thinks long
                lasted = time.monotonic() - started
                reserve = max(reserve, CONFIRM_SHARE * lasted) if len(history.tried) == 1 else reserve


def _confirm(session: Session, bench: Bench, history: History) -> tuple[Candidate, Verdict] | None:
    promising = [entry for entry in history.ranked() if _worth_confirming(entry)]
    for entry in promising[:MAX_CONFIRMS]:
        session.progress(f"solve:{entry.candidate.definition}", 0, 1, f"confirming {entry.candidate.author}")
        verdict = judge(session, bench, entry.candidate, "confirm")
        if verdict.accepted:
            return entry.candidate, verdict
    return None


def _worth_confirming(entry: Tried) -> bool:
    """Search intervals are wide: confirm what looks faster, whether or not its interval cleared the floor."""
    return entry.ratio > 1.02


def _result(history: History, accepted: tuple[Candidate, Verdict] | None) -> dict[str, Any]:
    default = next((t for t in history.tried if accepted and t.candidate.author == accepted[0].author), None)
    best = next((t for t in history.tried if accepted and digest_of(t.candidate) == digest_of(accepted[0])), None)
    gain = best.ratio / default.ratio if best and default and default.ratio > 0 else None
    return {
        "candidate": None,
        "verdict": None,
        "searched": len(history.tried),
        "rejected": sum(t.verdict.outcome != "faster" for t in history.tried),
        "gain_over_default": gain,
    }
