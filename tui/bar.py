"""A progress bar on stderr for work that is counted in steps; without a terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType

LINE_EVERY_S = 10.0


class Bar:
    """Call `show(done, total, text)` as often as you like. A context manager."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._live = sys.stderr.isatty()
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not self._live)
        self._task = self._bar.add_task("starting", total=None)
        self._told = float("-inf")

    def show(self, done: int, total: int, text: str) -> None:
        self._bar.update(self._task, completed=done, total=total, description=text)
        if not self._live and time.monotonic() - self._told > LINE_EVERY_S:
            print(f"{done} of {total}: {text}", file=sys.stderr, flush=True)
            self._told = time.monotonic()

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()
