"""PhaseList: the steps of the walk with their state and time."""

from __future__ import annotations

import time

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.tui.palette import ACCENT, DIM, FAINT, TEXT, YELLOW
from kernelwright.tui.view import PhaseView, SessionView
from kernelwright.tui.widgets.view_widget import ViewWidget
from kernelwright.tui.words import clock

_MARKS = {"waiting": ("·", FAINT), "running": ("●", ACCENT), "done": ("✓", DIM), "interrupted": ("‖", YELLOW)}
_NAMES = {"waiting": FAINT, "running": ACCENT, "done": TEXT, "interrupted": YELLOW}


class PhaseList(ViewWidget):
    def on_mount(self) -> None:
        self.set_interval(1.0, self.tick)

    def tick(self) -> None:
        """Let the clock of the phase that runs go on between two events."""
        if self.view is not None and self.view.running_since is not None:
            self.refresh()

    def draw(self, view: SessionView, width: int) -> RenderableType:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=1)
        table.add_column(width=12, no_wrap=True)
        table.add_column(justify="right", no_wrap=True, min_width=5)
        for phase in view.phases:
            mark, colour = _MARKS[phase.state]
            name = Text.assemble((phase.name, _NAMES[phase.state]), (f" {phase.count}", DIM))
            table.add_row(Text(mark, colour), name, _time(phase))
        return table


def _time(phase: PhaseView) -> Text:
    if phase.state == "waiting":
        return Text("")
    seconds = clock(phase.seconds_at(time.time()))
    return Text.assemble((seconds, ACCENT if phase.state == "running" else DIM))
