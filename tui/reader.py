"""Reader: builds a `SessionView` from a session folder, of a live session or a finished one. Read-only, no Textual."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kernelwright.agent.assemble import assemble_report
from kernelwright.agent.database import is_live
from kernelwright.agent.events import (
    Event,
    GateFinished,
    KernelAccepted,
    PatchCommitted,
    PhaseEnded,
    PhaseStarted,
    ProgressMade,
    ReportWritten,
    SessionEnded,
    SessionResumed,
    SessionStarted,
)  # fmt: skip
from kernelwright.agent.ledger import Attempt, Ledger, Step
from kernelwright.profiles.profile import Profile
from kernelwright.profiles.target import Target
from kernelwright.tui.view import (
    PHASES,
    AcceptedKernel,
    Best,
    Fidelity,
    GateView,
    PhaseView,
    SessionView,
    Speed,
    Standing,
)  # fmt: skip

Model = TypeVar("Model", bound=BaseModel)


class SessionReader:
    """Follows one session folder. Raises WrongUse when it is none, BrokenInput when it is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger.open(folder, readonly=True)
        self._events: list[tuple[int, Event]] = []
        self._results: dict[str, dict[str, Any]] = {}
        self._report: dict[str, Any] = {}
        self._report_of: tuple[str | None, ...] = ()
        self._stamp: tuple[int, bool] | None = None
        self._view: SessionView | None = None

    def close(self) -> None:
        self.ledger.close()

    def read(self) -> SessionView:
        """Return the session as it stands; the very same object as last time when nothing was written since."""
        live = is_live(self.folder)
        with self.ledger.snapshot() as version:
            if self._view is None or self._stamp != (version, live):
                self._events += self.ledger.events(after_seq=self._events[-1][0] if self._events else 0)
                self._view = self._build(live)
                self._stamp = (version, live)
        return self._view

    def _build(self, live: bool) -> SessionView:
        events = tuple(self._events)
        facts = [event for _, event in events]
        steps = self.ledger.steps()
        results = {step.name: self._result(step) for step in steps if step.state == "done" and step.result}
        unreadable: list[str] = []
        profile = _parse(Profile, results.get("profile"), "profile", unreadable)
        targets = _parse_all(Target, results.get("rank", {}).get("targets"), "rank", unreadable)
        attempts = tuple(self.ledger.attempts())
        standing = _standing(self.ledger.status, live)
        seconds, running_since = _clock(facts, live)
        return SessionView(
            folder=str(self.folder),
            standing=standing,
            reason=next((e.reason for e in reversed(facts) if isinstance(e, SessionEnded)), "") if not live else "",
            arguments=self.ledger.arguments,
            spent=self.ledger.spent(),
            seconds=seconds,
            running_since=running_since,
            phases=_phases(steps, facts, targets, live),
            progress=_progress(facts) if live else None,
            profile=profile,
            targets=targets,
            attempts=attempts,
            best=_best(attempts, targets, facts),
            gate=_gate(self._assemble(steps, unreadable), results.get("incumbent", {}), facts, unreadable),
            events=events,
            unreadable=tuple(dict.fromkeys(unreadable)),
        )

    def _result(self, step: Step) -> dict[str, Any]:
        assert step.result is not None
        if step.result not in self._results:
            self._results[step.result] = self.ledger.get(step.result)
        return self._results[step.result]

    def _assemble(self, steps: list[Step], unreadable: list[str]) -> dict[str, Any]:
        """Return the report object once the gate is done, put together again only when a step it rests on is new."""
        done = {step.name: step.result for step in steps if step.state == "done"}
        if "gate" not in done:
            return {}
        rests_on = tuple(done.get(name) for name in ("compose", "gate", "commit"))
        if rests_on != self._report_of:
            try:
                self._report = assemble_report(self.ledger)
            except (KeyError, TypeError, ValueError, AssertionError):
                # The record is whole (its digest was checked) but has another shape than this version writes.
                self._report = {}
            self._report_of = rests_on
        if not self._report:
            unreadable.append("gate")
        return self._report


def _standing(status: str, live: bool) -> Standing:
    if live:
        return "live"
    # A process that was killed could not write how it ended.
    return "killed" if status == "running" else status  # type: ignore[return-value]


def _clock(facts: list[Event], live: bool) -> tuple[float, float | None]:
    """Return the wall seconds of the runs before this one, and when this one started if it still runs."""
    seconds, started, last = 0.0, None, 0.0
    for event in facts:
        if isinstance(event, SessionStarted | SessionResumed):
            seconds += last - started if started is not None else 0.0
            started = event.at
        last = event.at
    if started is None or live:
        return seconds, started
    return seconds + last - started, None


def _phases(steps: list[Step], facts: list[Event], targets: tuple[Target, ...], live: bool) -> tuple[PhaseView, ...]:
    budgets = {event.phase: event.budget_s for event in facts if isinstance(event, PhaseStarted)}
    # Seconds as the session told them; a step's own times would count an interruption in.
    seconds = {event.phase: event.seconds for event in facts if isinstance(event, PhaseEnded)}
    by_phase: dict[str, list[Step]] = {}
    for step in steps:
        by_phase.setdefault(step.name.partition(":")[0], []).append(step)
    # Steps beside the walk, such as a self-test, come before it.
    names = [*(name for name in by_phase if name not in PHASES), *PHASES]
    solvable = len({target.definition for target in targets if target.reachable and target.excluded is None})
    views = []
    for name in names:
        mine = by_phase.get(name, [])
        running = next((step for step in mine if step.state == "running"), None)
        done = sum(step.state == "done" for step in mine)
        parts = max(len(mine), solvable) if name == "solve" else 0
        if running is not None and live:
            state, since = "running", running.started_at
        elif any(step.state != "done" for step in mine):
            state, since = "interrupted", None
        else:
            state, since = ("done" if mine else "waiting"), None
        views.append(
            PhaseView(
                name=name,
                state=state,  # type: ignore[arg-type]
                seconds=sum(seconds.get(step.name, 0.0) for step in mine if step.state == "done"),
                running_since=since,
                budget_s=budgets.get(running.name) if running is not None else None,
                count=f"{done}/{parts}" if parts and mine else "",
            )
        )
    return tuple(views)


def _progress(facts: list[Event]) -> ProgressMade | None:
    """Return the last word on how far the phase that runs is; None once it has ended."""
    for event in reversed(facts):
        if isinstance(event, ProgressMade):
            return event
        if isinstance(event, PhaseEnded | PhaseStarted):
            return None
    return None


def _best(attempts: tuple[Attempt, ...], targets: tuple[Target, ...], facts: list[Event]) -> tuple[Best, ...]:
    accepted = {(event.definition, event.candidate) for event in facts if isinstance(event, KernelAccepted)}
    names = dict.fromkeys([*(a.definition for a in attempts), *(t.definition for t in targets if not t.excluded)])
    found = []
    for name in names:
        mine = [attempt for attempt in attempts if attempt.definition == name]
        faster = [attempt for attempt in mine if attempt.outcome == "faster" and attempt.ratio]
        # A confirm counts for more than any search: its shapes were hidden and its process fresh.
        faster.sort(key=lambda a: ((name, a.candidate) in accepted, a.phase == "confirm", a.ratio), reverse=True)
        best = faster[0] if faster else None
        if best is None:
            standing = "none"
        elif best.phase == "confirm":
            standing = "accepted" if (name, best.candidate) in accepted else "confirmed"
        else:
            standing = "searched"
        tried = sum(attempt.phase == "search" for attempt in mine)
        found.append(Best(definition=name, attempt=best, standing=standing, tried=tried))  # type: ignore[arg-type]
    return tuple(found)


def _gate(report: dict[str, Any], incumbent: dict[str, Any], facts: list[Event], unreadable: list[str]) -> GateView:
    finished = next((event for event in reversed(facts) if isinstance(event, GateFinished)), None)
    patch = next((event for event in reversed(facts) if isinstance(event, PatchCommitted)), None)
    written = next((event for event in reversed(facts) if isinstance(event, ReportWritten)), None)
    ruling, engine = report.get("gate") or {}, report.get("engine") or {}
    accepted = [kernel for kernel in report.get("accepted") or () if kernel.get("live", True)]
    return GateView(
        passed=finished.passed if finished else None,
        state=ruling.get("state", ""),
        reason=finished.reason if finished else "",
        incumbent_tok_s=incumbent.get("decode_tok_s"),
        speed=_by_phase(Speed, {name: engine[name] for name in ("decode", "prefill") if name in engine}, unreadable),
        compiled_tok_s=(engine.get("compiled") or {}).get("decode_tok_s"),
        fidelity=_by_phase(Fidelity, report.get("fidelity") or {}, unreadable),
        accepted=_parse_all(AcceptedKernel, accepted, "gate", unreadable),
        bytes_per_token=report.get("bytes_per_token") or {},
        branch=patch.branch if patch else None,
        commit=patch.commit if patch else None,
        report=written.path if written else None,
    )


def _by_phase(model: type[Model], records: dict[str, Any], unreadable: list[str]) -> dict[str, Model]:
    parsed = {phase: _parse(model, record, "gate", unreadable) for phase, record in records.items()}
    return {phase: record for phase, record in parsed.items() if record is not None}


def _parse(model: type[Model], record: dict[str, Any] | None, step: str, unreadable: list[str]) -> Model | None:
    if not record:
        return None
    try:
        return model.model_validate(record)
    except ValidationError:
        # Shown as such on the screen: the rest of the session can still be read.
        unreadable.append(step)
        return None


def _parse_all(model: type[Model], records: Any, step: str, unreadable: list[str]) -> tuple[Model, ...]:
    parsed = [_parse(model, record, step, unreadable) for record in records or ()]
    return tuple(record for record in parsed if record is not None)
