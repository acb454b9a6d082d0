"""ViewWidget: a part of a screen that is drawn from a SessionView and nothing else."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual.widget import Widget

from kernelwright.tui.view import SessionView


class ViewWidget(Widget):
    DEFAULT_CSS = "ViewWidget { height: auto; width: 1fr; }"

    view: SessionView | None = None

    def show(self, view: SessionView) -> None:
        """Draw this state of the session from now on."""
        self.view = view
        self.refresh(layout=True)

    def draw(self, view: SessionView, width: int) -> RenderableType:
        """Return what to show of `view` in `width` cells."""
        raise NotImplementedError

    def render(self) -> RenderableType:
        if self.view is None:
            return Text("")
        return self.draw(self.view, self.content_size.width or self.app.size.width)

    def on_resize(self, event: events.Resize) -> None:
        self.refresh(layout=True)
