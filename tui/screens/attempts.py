"""AttemptsPane: every attempt, filtered by outcome; the verdict beside the list where there is room."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, Static

from kernelwright.agent.ledger import Attempt
from kernelwright.tui.palette import DIM, FAINT, OUTCOMES, TEXT
from kernelwright.tui.view import SessionView, outcome_of
from kernelwright.tui.widgets.quiet_table import QuietTable, Row
from kernelwright.tui.widgets.verdict_card import VerdictCard
from kernelwright.tui.words import shorten, times

_ORDERS = ("newest first", "fastest first")


class AttemptTable(QuietTable):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Open")]


class AttemptsPane(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter(1)", "Filter"),
        Binding("F", "filter(-1)", "Filter back", show=False),
        Binding("o", "order", "Order"),
    ]

    class Highlighted(Message):
        """The cursor stands on another attempt; its verdict goes to the card."""

        def __init__(self, attempt: Attempt) -> None:
            super().__init__()
            self.attempt = attempt

    class Opened(Message):
        """Enter on an attempt; `attempts` are those in the list, in its order."""

        def __init__(self, attempts: tuple[Attempt, ...], at: int) -> None:
            super().__init__()
            self.attempts, self.at = attempts, at

    view: SessionView | None = None
    outcome: str = "all"
    order: str = _ORDERS[0]

    def compose(self) -> ComposeResult:
        yield Static(id="filter")
        with Horizontal():
            yield AttemptTable(id="attempts-table")
            with VerticalScroll(id="verdict-panel", can_focus=False):
                yield VerdictCard()

    def show(self, view: SessionView) -> None:
        """Draw this state of the session from now on."""
        self.view = view
        self._fill()

    def shown(self) -> list[Attempt]:
        """Return the attempts in the list, in its order."""
        attempts = list(self.view.attempts) if self.view else []
        picked = [a for a in attempts if self.outcome in ("all", outcome_of(a))]
        if self.order == _ORDERS[0]:
            return sorted(picked, key=lambda a: (a.started_at, a.id), reverse=True)
        return sorted(picked, key=lambda a: a.ratio or 0.0, reverse=True)

    def action_filter(self, direction: int) -> None:
        choices = ["all", *_present(self.view)]
        at = choices.index(self.outcome) if self.outcome in choices else 0
        self.outcome = choices[(at + direction) % len(choices)]
        self._fill()

    def action_order(self) -> None:
        self.order = _ORDERS[1 - _ORDERS.index(self.order)]
        self._fill()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        found = [a for a in self.shown() if str(a.id) == event.row_key.value]
        if found:
            self.post_message(self.Highlighted(found[0]))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        shown = self.shown()
        at = next((n for n, a in enumerate(shown) if str(a.id) == event.row_key.value), None)
        if at is not None:
            self.post_message(self.Opened(tuple(shown), at))

    def on_resize(self, event: events.Resize) -> None:
        if self.view is not None:
            self._fill()

    def _fill(self) -> None:
        table = self.query_one(QuietTable)
        room = self.app.size.width
        shown = self.shown()
        with_author = (room < 118 and room >= 94) or room >= 150
        columns = ("#", "definition", *(("author",) if with_author else ()), "phase", "outcome", " ratio")
        table.fill(columns, [_row(attempt, with_author) for attempt in shown])
        self.query_one("#filter", Static).update(_filter_line(self.view, self.outcome, self.order, room - 2))
        if not shown:
            self.query_one(VerdictCard).show(None)


def _present(view: SessionView | None) -> list[str]:
    counts = view.outcomes() if view else {}
    return [outcome for outcome in OUTCOMES if outcome in counts]


def _filter_line(view: SessionView | None, chosen: str, order: str, width: int) -> Text:
    counts = {"all": len(view.attempts), **view.outcomes()} if view else {"all": 0}
    parts = []
    for outcome in ["all", *_present(view)]:
        colour = OUTCOMES.get(outcome, TEXT)
        name = Text(outcome, f"{colour} bold underline" if outcome == chosen else colour)
        parts.append(name + Text(f" {counts[outcome]}", DIM))
    full = Text("   ").join([*parts, Text(order, FAINT)])
    return full if len(full) <= width else Text(" ").join(parts)


def _row(attempt: Attempt, with_author: bool) -> Row:
    outcome = outcome_of(attempt)
    colour = OUTCOMES.get(outcome, TEXT)
    cells = [
        Text(str(attempt.id), FAINT),
        Text(shorten(attempt.definition, 32), TEXT),
        *([Text(shorten(attempt.author, 24), DIM)] if with_author else []),
        Text(attempt.phase, TEXT if attempt.phase == "confirm" else DIM),
        Text(outcome, colour),
        Text(times(attempt.ratio) if attempt.ratio else "", colour, justify="right"),
    ]
    return str(attempt.id), cells
