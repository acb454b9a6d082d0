"""Put candidates before the judge, once each: what the ledger has recorded is not judged again."""

from __future__ import annotations

from typing import Literal

from kernelwright.agent.events import CandidateJudged, CandidateProposed
from kernelwright.agent.propose import History
from kernelwright.agent.session import Session
from kernelwright.kernels.candidate import Candidate
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.verify import Bench

JudgePhase = Literal["search", "confirm"]


def judge(session: Session, bench: Bench, candidate: Candidate, phase: JudgePhase) -> Verdict:
    """Return the recorded verdict of `candidate`, or take it now; recorded before and after."""
    ledger = session.ledger
    digest = ledger.put(candidate)
    recorded = ledger.attempts(candidate.definition, digest, phase, "judged")
    if recorded and recorded[0].verdict:
        return ledger.load(recorded[0].verdict, Verdict)
    attempt = ledger.begin_attempt(candidate.definition, digest, candidate.proposer, candidate.author, phase)
    if phase == "search":
        session.emit(
            CandidateProposed(
                definition=candidate.definition, candidate=digest, proposer=candidate.proposer, author=candidate.author
            )
        )
    verdict = bench.search(candidate) if phase == "search" else bench.confirm(candidate)
    _record(session, attempt, digest, candidate, verdict)
    return verdict


def _record(session: Session, attempt: int, digest: str, candidate: Candidate, verdict: Verdict) -> None:
    timed = verdict.comparison
    numbers = {"ratio": timed.ratio, "low": timed.low, "high": timed.high} if timed else {}
    stored = session.ledger.put(verdict)
    with session.ledger.transaction():
        session.ledger.finish_attempt(
            attempt, verdict=stored, outcome=verdict.outcome, reason=verdict.reason, **numbers
        )
        session.ledger.spend("attempts", 1)
    session.budget.attempts += 1
    session.emit(
        CandidateJudged(
            definition=candidate.definition,
            candidate=digest,
            phase=verdict.phase,
            outcome=verdict.outcome,
            reason=verdict.reason,
            **numbers,
        )
    )


def recorded_history(session: Session, definition: str) -> History:
    """Return what an earlier run of this session tried on `definition`, in order."""
    history = History()
    for attempt in session.ledger.attempts(definition, phase="search", state="judged"):
        if attempt.verdict:
            candidate = session.ledger.load(attempt.candidate, Candidate)
            history.add(candidate, session.ledger.load(attempt.verdict, Verdict))
    return history
