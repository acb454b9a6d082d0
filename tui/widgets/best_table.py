"""BestTable: per definition the best attempt so far, and what it rests on."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.tui.palette import DIM, FAINT, GREEN, TEXT
from kernelwright.tui.view import Best, SessionView
from kernelwright.tui.widgets.view_widget import ViewWidget
from kernelwright.tui.words import span, times

_MARKS = {"accepted": ("✓", GREEN), "confirmed": ("•", GREEN), "searched": ("◦", DIM), "none": (" ", DIM)}


class BestTable(ViewWidget):
    def draw(self, view: SessionView, width: int) -> RenderableType:
        if not view.best:
            return Text("no targets yet", FAINT)
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=1)
        table.add_column(no_wrap=True, overflow="ellipsis", min_width=24)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        wide = width >= 66
        for best in view.best:
            mark, colour = _MARKS[best.standing]
            row = [Text(mark, colour), Text(best.definition, TEXT if best.tried else FAINT), *_numbers(best)]
            table.add_row(*row, *([Text(_effort(best), DIM)] if wide else []))
        return table


def _numbers(best: Best) -> tuple[Text, Text]:
    attempt = best.attempt
    if attempt is None:
        return Text("–" if best.tried else "", DIM), Text(f"{best.tried} tried" if best.tried else "", DIM)
    # A search result is a promise, not yet a number to show off: it stays dim.
    colour = DIM if best.standing == "searched" else GREEN
    return Text(times(attempt.ratio), colour), Text(span(attempt.low, attempt.high), DIM)


def _effort(best: Best) -> str:
    return f"{best.standing}, {best.tried} tried" if best.attempt else ""
