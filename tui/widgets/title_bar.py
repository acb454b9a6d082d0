"""TitleBar: which session this is, and how it stands."""

from __future__ import annotations

from pathlib import PurePath

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.tui.palette import ACCENT, DIM, STANDINGS, TEXT
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.view_widget import ViewWidget


class TitleBar(ViewWidget):
    def draw(self, view: SessionView, width: int) -> RenderableType:
        model = PurePath(str(view.arguments.get("model", ""))).stem
        left = Text.assemble(
            ("kernelwright", f"bold {ACCENT}"), ("  " + PurePath(view.folder).name, TEXT), ("  " + model, DIM)
        )
        left.no_wrap, left.overflow = True, "ellipsis"
        line = Table.grid(expand=True)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        line.add_row(left, Text(f"  ● {view.standing}", STANDINGS[view.standing]))
        return line
