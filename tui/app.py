"""SessionApp: follows a live session, or opens a finished one. It only reads."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme

from kernelwright.agent.ledger import Attempt
from kernelwright.profiles.errors import KernelwrightError, WrongUse
from kernelwright.tui import palette
from kernelwright.tui.attempt_view import AttemptView, read_attempt
from kernelwright.tui.messages import SessionBroke, SessionChanged
from kernelwright.tui.reader import SessionReader
from kernelwright.tui.screens.attempt import AttemptScreen
from kernelwright.tui.screens.attempts import AttemptsPane
from kernelwright.tui.screens.broken import BrokenScreen
from kernelwright.tui.screens.help import HelpScreen
from kernelwright.tui.screens.session import SessionScreen
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.verdict_card import VerdictCard

POLL_S, SLOWEST_POLL_S = 0.5, 3.0
# Share of one core that following may take: the same machine is measuring, and the screen must not be in its way.
CPU_SHARE = 0.05

THEME = Theme(
    name="kernelwright", dark=True, primary=palette.ACCENT, secondary=palette.DIM, accent=palette.ACCENT,
    foreground=palette.TEXT, background=palette.GROUND, surface=palette.GROUND, panel=palette.PANEL,
    success=palette.GREEN, warning=palette.YELLOW, error=palette.RED,
    variables={
        "footer-background": palette.PANEL, "footer-key-foreground": palette.ACCENT,
        "footer-description-foreground": palette.DIM, "block-cursor-background": palette.RAISED,
        "block-cursor-foreground": palette.TEXT, "block-cursor-text-style": "none",
        "scrollbar": palette.RAISED, "scrollbar-background": palette.GROUND,
    },
)  # fmt: skip


class SessionApp(App[int]):
    CSS_PATH = "app.tcss"
    TITLE = "kernelwright"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, session: Path) -> None:
        """Open the session folder; raises WrongUse and BrokenInput as `SessionReader` does."""
        super().__init__()
        self._reader = SessionReader(session)
        self._view = self._reader.read()
        self._stopped = threading.Event()

    @property
    def view(self) -> SessionView:
        """What is shown now."""
        return self._view

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self.push_screen(SessionScreen(self._view))
        self.follow()

    def on_unmount(self) -> None:
        self._stopped.set()

    @work(thread=True)
    def follow(self) -> None:
        """Read the ledger about twice a second, less often when drawing is dear, and tell the screens what is new."""
        last, pause, used = self._view, POLL_S, time.process_time()
        try:
            while not self._stopped.wait(pause):
                view = self._reader.read()
                if view is not last:
                    self.post_message(SessionChanged(view))
                    last = view
                before, used = used, time.process_time()
                pause = min(SLOWEST_POLL_S, max(POLL_S, (used - before) / CPU_SHARE))
        except KernelwrightError as error:
            self.post_message(SessionBroke(error))
        finally:
            self._reader.close()

    def on_session_changed(self, message: SessionChanged) -> None:
        self._view = message.view
        for screen in self.screen_stack:
            if isinstance(screen, SessionScreen):
                screen.show(message.view)

    def on_session_broke(self, message: SessionBroke) -> None:
        self.push_screen(BrokenScreen(message.error))

    def on_attempts_pane_highlighted(self, message: AttemptsPane.Highlighted) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, SessionScreen):
                screen.query_one(VerdictCard).show(self._read_or_none(message.attempt))

    def on_attempts_pane_opened(self, message: AttemptsPane.Opened) -> None:
        self.push_screen(AttemptScreen(message.attempts, message.at, self._read))

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def _read(self, attempt: Attempt) -> AttemptView:
        return read_attempt(self._reader.ledger, self._view, attempt)

    def _read_or_none(self, attempt: Attempt) -> AttemptView | None:
        try:
            return self._read(attempt)
        except KernelwrightError:
            return None  # the full screen of this attempt says what is wrong with its records


def run_app(session_dir: Path) -> int:
    """Show the session until the user quits; return the exit code. Raises WrongUse, BrokenInput."""
    app = SessionApp(session_dir)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WrongUse("the screens need a terminal", f"For a file, use `kernelwright report {session_dir}`.")
    return app.run() or 0
