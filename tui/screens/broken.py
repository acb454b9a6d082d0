"""BrokenScreen: the session cannot be read any more; what is wrong and what to do."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Footer, Static

from kernelwright.profiles.errors import KernelwrightError
from kernelwright.tui.palette import DIM, RED, TEXT


class BrokenScreen(Screen[None]):
    def __init__(self, error: KernelwrightError) -> None:
        super().__init__()
        self._error = error

    def compose(self) -> ComposeResult:
        with Vertical(id="broken"):
            yield Static(
                Text.assemble(
                    ("This session cannot be read\n\n", f"bold {RED}"), (self._error.message, TEXT),
                    (f"\n\n{self._error.remedy}", DIM),
                )
            )  # fmt: skip
        yield Footer()
