"""SessionScreen: title, five tabs, footer."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, TabbedContent, TabPane, Tabs

from kernelwright.tui.screens.attempts import AttemptsPane
from kernelwright.tui.screens.engine import EnginePane
from kernelwright.tui.screens.log import LogPane
from kernelwright.tui.screens.overview import OverviewPane
from kernelwright.tui.screens.targets import TargetsPane
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.title_bar import TitleBar

Pane = OverviewPane | TargetsPane | AttemptsPane | EnginePane | LogPane
PANES: dict[str, type[Pane]] = {
    "overview": OverviewPane,
    "targets": TargetsPane,
    "attempts": AttemptsPane,
    "engine": EnginePane,
    "log": LogPane,
}
_FOCUS = {
    "overview": "#best",
    "targets": "#targets-table",
    "attempts": "#attempts-table",
    "engine": "EnginePane",
    "log": "#log-lines",
}


class SessionScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "tab('overview')", "Tabs", key_display="1-5"),
        Binding("2", "tab('targets')", show=False),
        Binding("3", "tab('attempts')", show=False),
        Binding("4", "tab('engine')", show=False),
        Binding("5", "tab('log')", show=False),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (118, "-wide")]  # noqa: RUF012  (declared so by Textual)

    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012

    def __init__(self, view: SessionView) -> None:
        super().__init__()
        self._view = view

    def compose(self) -> ComposeResult:
        yield TitleBar()
        with TabbedContent(initial="overview"):
            for number, (name, pane) in enumerate(PANES.items(), start=1):
                with TabPane(f"{number} {name.capitalize()}", id=name):
                    yield pane()
        yield Footer()

    def on_mount(self) -> None:
        # Focus stays in the panes, so that their keys work at once; the tabs have keys of their own.
        self.query_one(Tabs).can_focus = False
        self.show(self._view)
        self.action_tab("overview")

    def show(self, view: SessionView) -> None:
        """Draw this state of the session from now on.

        Only the tab that is seen is drawn: the machine is busy measuring, and the screen must not be in its way.
        """
        self._view = view
        self.query_one(TitleBar).show(view)
        self.query_one(PANES[self.query_one(TabbedContent).active]).show(view)

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        self.call_after_refresh(self._focus, name)

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        name = event.pane.id or "overview"
        self.query_one(PANES[name]).show(self._view)
        self._focus(name)

    def _focus(self, name: str) -> None:
        self.query_one(_FOCUS[name]).focus()
