"""TargetsPane: where the time goes, how far each slot is from its roofline, and what is worked on."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from kernelwright.profiles.profile import Profile
from kernelwright.profiles.target import Target
from kernelwright.tui.palette import DIM, FAINT, TEXT, YELLOW
from kernelwright.tui.plots import headroom_bar
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.quiet_table import QuietTable, Row
from kernelwright.tui.words import duration, percent, shorten, times

_COLUMNS = ("definition", "step", " share", "headroom", " ceiling")


class TargetsPane(Vertical):
    view: SessionView | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="profile")
        yield QuietTable(id="targets-table")
        yield Static(id="target-note")

    def show(self, view: SessionView) -> None:
        """Draw this state of the session from now on."""
        self.view = view
        self.query_one("#profile", Static).update(_summary(view.profile))
        wide = self.app.size.width >= 118
        columns = (*_COLUMNS, "excluded because") if wide else _COLUMNS
        self.query_one(QuietTable).fill(columns, [_row(n, target, wide) for n, target in enumerate(view.targets)])
        self._note()

    def on_data_table_row_highlighted(self) -> None:
        self._note()

    def on_resize(self, event: events.Resize) -> None:
        if self.view is not None:
            self.show(self.view)

    def _note(self) -> None:
        key = self.query_one(QuietTable).cursor_key
        if self.view is not None and key is not None:
            self.query_one("#target-note", Static).update(_note(self.view.targets[int(key)]))


def _summary(profile: Profile | None) -> Text:
    if profile is None:
        return Text("no profile yet", FAINT)
    cost = profile.step_ms_profiled / profile.step_ms_unprofiled - 1 if profile.step_ms_unprofiled else 0.0
    unattributed = profile.unattributed_ns / profile.busy_ns if profile.busy_ns else 0.0
    lines = Text.assemble(
        (f"{profile.step_ms_unprofiled:.1f} ms", TEXT),
        (f" a decode step ({percent(cost)} more while profiled) · ", DIM),
        (percent(unattributed), TEXT), (" outside slots", DIM),
    )  # fmt: skip
    machine, ceilings = profile.machine, profile.ceilings
    measured = f" · DRAM {ceilings.dram_bytes_per_s / 1e9:.1f} GB/s · {ceilings.threads} threads" if ceilings else ""
    return lines + Text(f"\n{machine.cpu} · {machine.isa}{measured}", DIM)


def _row(n: int, target: Target, wide: bool) -> Row:
    excluded = target.excluded is not None or not target.reachable
    colour = FAINT if excluded else TEXT
    cells = [
        Text(target.definition if wide else shorten(target.definition, 31), colour),
        Text(f"{target.phase} {target.tokens}", FAINT if excluded else DIM),
        Text(percent(target.share), colour, justify="right"),
        _headroom(target, FAINT if excluded else TEXT),
        Text(times(target.ceiling), colour, justify="right"),
    ]
    return str(n), [*cells, Text(_why(target), YELLOW if excluded else DIM)] if wide else cells


def _headroom(target: Target, colour: str) -> Text:
    if target.headroom is None:
        return Text("–".rjust(12), FAINT)
    number = f"{target.headroom:.1f}×" if target.headroom < 100 else f"{target.headroom:.0f}×"
    return Text.assemble(headroom_bar(target.headroom, 6), (number.rjust(6), colour))


def _why(target: Target) -> str:
    return target.excluded or ("" if target.reachable else "no slot to put a candidate in")


def _note(target: Target) -> Text:
    why = _why(target)
    if why:
        return Text.assemble((f"{target.definition}\n", TEXT), (f"excluded: {why}", YELLOW))
    now = f"{duration(target.ns_per_call)} a call at {target.tokens} token{'s' if target.tokens != 1 else ''}"
    roofline = ""
    if target.roofline_ns:
        roofline = f", {duration(target.roofline_ns)} at its roofline, bound by {target.bound}"
    return Text.assemble((target.definition, TEXT), ("  worked on\n", DIM), (f"{now}{roofline}", DIM))
