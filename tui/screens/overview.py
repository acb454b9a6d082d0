"""OverviewPane: phases, budget, the engine's A/B, the best so far, and what is being done."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static

from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.best_table import BestTable
from kernelwright.tui.widgets.budget_bar import BudgetBar
from kernelwright.tui.widgets.headline import Headline, ProgressLine
from kernelwright.tui.widgets.latest_events import LatestEvents
from kernelwright.tui.widgets.phase_list import PhaseList
from kernelwright.tui.widgets.view_widget import ViewWidget


class OverviewPane(Vertical):
    def compose(self) -> ComposeResult:
        yield BudgetBar()
        yield Headline()
        with Horizontal(id="lists"):
            with Vertical(id="phases"):
                yield Static("Phases", classes="heading")
                yield PhaseList()
            with VerticalScroll(id="best"):
                yield Static("Best so far", classes="heading")
                yield BestTable()
        with Vertical(id="latest"):
            yield Static("Latest", classes="heading")
            yield LatestEvents()
        yield ProgressLine()

    def show(self, view: SessionView) -> None:
        """Draw this state of the session from now on."""
        for part in self.query(ViewWidget):
            part.show(view)
