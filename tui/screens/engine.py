"""EnginePane: the gate, in full."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.engine_card import EngineCard


class EnginePane(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield EngineCard()

    def show(self, view: SessionView) -> None:
        """Draw this state of the session from now on."""
        self.query_one(EngineCard).show(view)
