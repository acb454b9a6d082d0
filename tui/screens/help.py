"""HelpScreen: the keys, and what the outcomes mean."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from kernelwright.tui.palette import ACCENT, DIM, OUTCOMES, TEXT

_KEYS = {
    "1 … 5": "overview, targets, attempts, engine, log",
    "↑ ↓  home end": "move; also page up and down",
    "enter": "open an attempt: source, difference, evaluations",
    "f  F": "attempts: next or previous outcome",
    "o": "attempts: newest or fastest first",
    "p": "log: show or hide lines of progress",
    "q": "quit; the session goes on",
}
_OUTCOMES = {
    "faster": "right, and its interval lies above 1 and this host's floor",
    "slower": "right, but slower than the incumbent",
    "inconclusive": "right, and no difference was shown",
    "incorrect": "an output differs from the fp64 reference",
    "suspect": "faster than the hardware allows, or caught cheating",
    "invalid": "does not compile, crashes, or runs out of time",
    "unmeasured": "right, but this machine cannot time it",
}


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(Group(Text("Keys", f"bold {TEXT}"), _keys(), Text("\nOutcomes", f"bold {TEXT}"), _outcomes()))


def _keys() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for key, words in _KEYS.items():
        table.add_row(Text(key, ACCENT), Text(words, DIM))
    return table


def _outcomes() -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for outcome, words in _OUTCOMES.items():
        table.add_row(Text(outcome, OUTCOMES[outcome]), Text(words, DIM))
    return table
