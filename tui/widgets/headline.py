"""Headline: the engine-level A/B in two lines, or why it is not there yet."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.tui.palette import DIM, GREEN, RED, TEXT, YELLOW
from kernelwright.tui.plots import bar, interval_plot
from kernelwright.tui.view import SessionView, Speed
from kernelwright.tui.widgets.view_widget import ViewWidget
from kernelwright.tui.words import span, times


def colour_of(speed: Speed) -> str:
    """Return green when the interval lies above 1, red when below, else plain text."""
    if speed.interval is None:
        return TEXT
    low, high = speed.interval
    return GREEN if low > 1 else RED if high < 1 else TEXT


def speed_plot(speed: Speed, width: int) -> Text:
    """Return the interval over 1.0 on one line; empty where there is none."""
    if speed.ratio is None or speed.interval is None:
        return Text("")
    low, high = speed.interval
    return interval_plot(speed.ratio, min(low, speed.ratio), max(high, speed.ratio), width, colour_of(speed)).split(
        "\n"
    )[0]


class Headline(ViewWidget):
    def draw(self, view: SessionView, width: int) -> RenderableType:
        if not view.gate.speed:
            return Text.assemble(("Engine  ", f"bold {TEXT}"), (_why_not(view), DIM))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, width=7)
        for _ in range(3):
            table.add_column(no_wrap=True)
        for phase, speed in view.gate.speed.items():
            table.add_row(
                Text(phase, f"bold {TEXT}"),
                Text(_tokens(speed), DIM),
                Text.assemble(
                    (times(speed.ratio), f"bold {colour_of(speed)}"),
                    (" " + span(*(speed.interval or (None, None))), DIM),
                ),
                speed_plot(speed, max(12, min(40, width - 60))),
            )
        if view.gate.passed is False:
            refused = view.gate.state != "review"
            words = Text("refused  " if refused else "review  ", RED if refused else YELLOW) + Text(
                view.gate.reason, TEXT
            )
            return Group(table, words)
        return table


def _tokens(speed: Speed) -> str:
    if speed.incumbent_tok_s is None or speed.patched_tok_s is None:
        return "–"
    return f"{speed.incumbent_tok_s:6.1f} → {speed.patched_tok_s:6.1f} tok/s"


def _why_not(view: SessionView) -> str:
    gate = view.gate
    if view.standing != "live":
        return "not measured: the session ended before the gate did"
    if gate.incumbent_tok_s is not None:
        return f"incumbent decodes {gate.incumbent_tok_s:.1f} tok/s; the gate measures the rest"
    return "not measured yet; the gate does, over HTTP on the served engine"


class ProgressLine(ViewWidget):
    """How far the phase that runs is, in its own words."""

    def draw(self, view: SessionView, width: int) -> RenderableType:
        progress = view.progress
        if progress is None:
            running = next((phase.name for phase in view.phases if phase.state == "running"), "")
            return Text(running, DIM)
        line = Text.assemble((f"{progress.phase}  ", TEXT))
        if progress.total > 0:
            line.append_text(bar(progress.done / progress.total, 12, DIM))
            line.append(f"  {progress.done}/{progress.total}", DIM)
        line.append(f"  {progress.text}", DIM)
        line.no_wrap, line.overflow = True, "ellipsis"
        return line
