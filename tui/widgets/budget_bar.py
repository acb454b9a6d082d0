"""BudgetBar: what was spent of wall time, attempts and tokens, and how the session ended."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.tui.palette import DIM, STANDINGS, TEXT, YELLOW
from kernelwright.tui.plots import bar
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.view_widget import ViewWidget
from kernelwright.tui.words import clock


class BudgetBar(ViewWidget):
    def on_mount(self) -> None:
        self.set_interval(1.0, self.tick)

    def tick(self) -> None:
        """Let the clock of a live session go on between two events."""
        if self.view is not None and self.view.running_since is not None:
            self.refresh()

    def draw(self, view: SessionView, width: int) -> RenderableType:
        spent, budget = view.seconds_at(time.time()), view.budget_s
        line = Table.grid(expand=True, padding=(0, 2, 0, 0))
        for _ in range(3):
            line.add_column(no_wrap=True)
        words = Text.assemble((clock(spent), TEXT), (f" of {clock(budget)}" if budget else "", DIM))
        rest = Text(_counts(view), DIM)
        room = max(8, width - len(words) - len(rest) - 8)
        line.add_row(words, bar(spent / budget, room, DIM) if budget else Text(""), rest)
        ending = _ending(view)
        return Group(line, ending) if ending else line


def _counts(view: SessionView) -> str:
    parts = []
    for kind, limit in (("attempts", "max_attempts"), ("tokens", "max_tokens")):
        if kind in view.spent or limit in view.arguments:
            most = view.arguments.get(limit)
            parts.append(f"{kind} {view.spent.get(kind, 0):,.0f}" + (f" of {most:,}" if isinstance(most, int) else ""))
    return " · ".join(parts)


def _ending(view: SessionView) -> Text:
    if view.unreadable:
        return Text(f"written by another version: cannot show the result of {', '.join(view.unreadable)}", YELLOW)
    if view.standing == "killed":
        return Text("its process was killed; `kernelwright optimize --resume` goes on", STANDINGS["killed"])
    if view.standing == "live":
        return Text("")
    return Text(view.standing + (f": {view.reason}" if view.reason else ""), STANDINGS[view.standing])
