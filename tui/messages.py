"""Messages of the app: what the worker that reads the ledger tells the screens."""

from __future__ import annotations

from textual.message import Message

from kernelwright.profiles.errors import KernelwrightError
from kernelwright.tui.view import SessionView


class SessionChanged(Message):
    """Something was written to the session; `view` is how it stands now."""

    def __init__(self, view: SessionView) -> None:
        super().__init__()
        self.view = view


class SessionBroke(Message):
    """The session can no longer be read."""

    def __init__(self, error: KernelwrightError) -> None:
        super().__init__()
        self.error = error
