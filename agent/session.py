"""Session: one run of the workbench. Steps that are done are not done again; every fact goes through the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.agent.budget import Budget
from kernelwright.agent.events import Event, PhaseEnded, PhaseStarted, ProgressMade, SessionResumed, SessionStarted
from kernelwright.agent.ledger import Ledger
from kernelwright.agent.options import OptimizeOptions
from kernelwright.profiles.errors import WrongUse

Listener = Callable[[Event], None]


class Session:
    """An open session folder: ledger, budget, and whoever listens to the events. A context manager."""

    def __init__(self, ledger: Ledger, options: OptimizeOptions, listen: Listener) -> None:
        self.ledger, self.options, self._listen = ledger, options, listen
        spent = ledger.spent()
        self.budget = Budget(
            total_s=options.minutes * 60,
            max_attempts=options.max_attempts,
            max_tokens=options.max_tokens,
            spent_before_s=spent.get("wall_s", 0.0),
            attempts=int(spent.get("attempts", 0)),
            tokens=int(spent.get("tokens", 0)),
        )
        self._saved_at = time.monotonic()
        self._saved_tokens = self.budget.tokens

    @property
    def folder(self) -> Path:
        return self.ledger.folder

    def emit(self, event: Event) -> None:
        """Record the fact, then tell whoever listens."""
        self.ledger.emit(event)
        self._listen(event)

    def tell(self, event: Event) -> None:
        """Tell whoever listens of a fact that is recorded already."""
        self._listen(event)

    def progress(self, phase: str, done: int, total: int, text: str = "") -> None:
        """Tell how far a phase is; recorded too, so that a screen in another process can follow."""
        self.emit(ProgressMade(phase=phase, done=done, total=total, text=text))

    def step(self, name: str, work: Callable[[], dict[str, Any]], budget_s: float | None = None) -> dict[str, Any]:
        """Return the step's result: the recorded one if it is done, else what `work` returns, recorded first."""
        recorded = self.ledger.step_result(name)
        if recorded is not None:
            return recorded
        self.ledger.begin_step(name)
        self.emit(PhaseStarted(phase=name, budget_s=budget_s))
        started = time.monotonic()
        result = work()
        self.ledger.finish_step(name, result)
        self.save_spent()
        self.emit(PhaseEnded(phase=name, seconds=time.monotonic() - started))
        return result

    def save_spent(self) -> None:
        """Write down wall time and tokens spent since the last time; attempts are written as they end."""
        now = time.monotonic()
        self.ledger.spend("wall_s", now - self._saved_at)
        self.ledger.spend("tokens", self.budget.tokens - self._saved_tokens)
        self._saved_at, self._saved_tokens = now, self.budget.tokens


def open_session(options: OptimizeOptions, listen: Listener, resume: bool) -> Session:
    """Create the session folder, or open it to go on. Raises WrongUse when there is (or is not) one already."""
    if not resume:
        ledger = Ledger.create(options.out, options.model_dump(mode="json"))
        session = Session(ledger, options, listen)
        session.emit(SessionStarted())
        return session
    if not (options.out / "session.db").exists():
        raise WrongUse(
            f"no session to resume in {options.out}", "Run it without --resume, or name the session's folder."
        )
    ledger = Ledger.open(options.out)
    ledger.mark_interrupted()
    ledger.set_status("running")
    session = Session(ledger, options, listen)
    session.emit(SessionResumed())
    return session


def recorded_options(folder: Path) -> OptimizeOptions:
    """Return what the session in `folder` was asked to do. Raises BrokenInput or WrongUse."""
    with Ledger.open(folder, readonly=True) as ledger:
        return OptimizeOptions.model_validate(ledger.arguments)
