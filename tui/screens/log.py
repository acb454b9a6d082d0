"""LogPane: the facts in their order; follows the newest unless scrolled up."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import RichLog, Static

from kernelwright.agent import events as e
from kernelwright.tui.palette import FAINT
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.latest_events import log_line


class LogPane(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("p", "progress", "Progress lines")]

    view: SessionView | None = None
    progress_shown: bool = False
    _written: int = 0

    def compose(self) -> ComposeResult:
        log = RichLog(wrap=False, min_width=40, auto_scroll=False, id="log-lines")
        log.anchor()  # at the newest, until the user scrolls up
        yield log
        yield Static(id="log-note")

    def show(self, view: SessionView) -> None:
        """Write the events that came since last time."""
        self.view = view
        log = self.query_one(RichLog)
        for seq, event in view.events:
            if seq > self._written and (self.progress_shown or not isinstance(event, e.ProgressMade)):
                log.write(log_line(event))
        self._written = view.seq
        hidden = sum(isinstance(event, e.ProgressMade) for _, event in view.events)
        words = f"{len(view.events)} events" + ("" if self.progress_shown else f", {hidden} of progress not shown")
        self.query_one("#log-note", Static).update(Text(words, FAINT))

    def action_progress(self) -> None:
        self.progress_shown = not self.progress_shown
        self.query_one(RichLog).clear()
        self._written = 0
        if self.view is not None:
            self.show(self.view)
