"""Progress of a session on the terminal: what is being done, best so far, time left. Talk, so it goes to stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from kernelwright.agent.events import (
    CandidateJudged,
    Event,
    GateFinished,
    KernelAccepted,
    PatchCommitted,
    PhaseEnded,
    PhaseStarted,
    ProgressMade,
    ReportWritten,
    SessionEnded,
)


class Progress:
    """Prints facts as lines; on a terminal also a live bar. Call it with each event. A context manager."""

    def __init__(self, total_s: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("starting", total=total_s, note="")
        self._started = time.monotonic()
        self._total_s = total_s

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        line = describe(event)
        if line is not None:
            self._console.print(f"[dim]{self._clock()}[/dim] {line}", markup=True)
        if isinstance(event, PhaseStarted):
            limit = f", {event.budget_s:.0f} s" if event.budget_s else ""
            self._bar.update(self._task, description=f"{event.phase}{limit}", note="")
        if isinstance(event, ProgressMade):
            self._bar.update(self._task, note=event.text)
        self._bar.update(self._task, completed=time.monotonic() - self._started)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._started)
        left = max(0, int(self._total_s) - seconds)
        return f"{seconds // 60:02d}:{seconds % 60:02d} ({left // 60:02d}:{left % 60:02d} left)"


COLOURS = {"faster": "green", "incorrect": "red", "invalid": "red", "suspect": "yellow", "slower": "dim"}


def describe(event: Event) -> str | None:
    """Return one line of rich markup for an event worth a line, else None."""
    if isinstance(event, PhaseStarted):
        return f"[bold]{event.phase}[/bold]"
    if isinstance(event, PhaseEnded):
        return f"[dim]{event.phase} took {event.seconds:.1f} s[/dim]"
    if isinstance(event, CandidateJudged):
        colour = COLOURS.get(event.outcome, "white")
        ratio = f" {event.ratio:.2f}x [{event.low:.2f}, {event.high:.2f}]".replace("[", r"\[") if event.ratio else ""
        return f"  {event.phase} [{colour}]{event.outcome}[/{colour}]{ratio}  [dim]{_plain(event.reason)}[/dim]"
    if isinstance(event, KernelAccepted):
        return f"  [green]accepted[/green] {event.definition} {event.ratio:.2f}x (kernel-level)"
    if isinstance(event, GateFinished):
        return f"gate {'[green]passed[/green]' if event.passed else '[red]not passed[/red]'}  {_plain(event.reason)}"
    if isinstance(event, PatchCommitted):
        return f"committed {event.commit[:12]} on {event.branch}"
    if isinstance(event, ReportWritten):
        return f"report {event.path}"
    if isinstance(event, SessionEnded):
        return f"session {event.status}  {_plain(event.reason)}"
    return None


def _plain(text: str) -> str:
    return text.replace("[", r"\[").splitlines()[0][:100] if text else ""
