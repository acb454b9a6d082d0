"""VerdictCard: outcome, reason, the ratio's interval drawn over 1.0, and what it rests on."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text
from textual import events
from textual.widget import Widget

from kernelwright.sandbox.verdict import Comparison, Verdict
from kernelwright.tui.attempt_view import AttemptView
from kernelwright.tui.palette import DIM, FAINT, OUTCOMES, TEXT, YELLOW
from kernelwright.tui.plots import interval_plot
from kernelwright.tui.view import outcome_of
from kernelwright.tui.words import duration, percent, size, span, times

_WIDE = 70


class VerdictCard(Widget):
    DEFAULT_CSS = "VerdictCard { height: auto; width: 1fr; }"

    shown: AttemptView | None = None

    def show(self, shown: AttemptView | None) -> None:
        """Draw this attempt; None empties the card."""
        self.shown = shown
        self.refresh(layout=True)

    def render(self) -> RenderableType:
        if self.shown is None:
            return Text("no attempt", FAINT)
        width = self.content_size.width or 40
        return Group(*draw_verdict(self.shown, width))

    def on_resize(self, event: events.Resize) -> None:
        self.refresh(layout=True)


def draw_verdict(shown: AttemptView, width: int) -> list[Text]:
    """Return the card's lines for `width` cells."""
    attempt, verdict = shown.attempt, shown.verdict
    outcome = outcome_of(attempt)
    colour = OUTCOMES.get(outcome, TEXT)
    lines = [
        Text.assemble((outcome, f"bold {colour}"), ("  " + attempt.definition, TEXT)),
        Text(f"{attempt.phase} · {attempt.candidate[:8]} · {attempt.author} ({attempt.proposer})", DIM),
    ]
    if attempt.times_begun > 1:
        lines.append(Text(f"begun {attempt.times_begun} times: interrupted before", YELLOW))
    if verdict is None:
        return lines
    timed = verdict.comparison
    # Beside the list there is height to spare, over a source there is not.
    gap = [Text("")] if width < _WIDE else []
    if timed is not None:
        lines += [*gap, *_plot(timed, width, colour)]
    lines += [*gap, Text(attempt.reason or "", TEXT)]
    if timed is not None:
        lines += _evidence(timed, width)
    marks = "".join(f" · {label}" for label in verdict.labels if label != "custom")
    lines.append(Text(f"isolation {verdict.isolation}{marks}{_packing(verdict)}", DIM))
    return lines


def _plot(timed: Comparison, width: int, colour: str) -> list[Text]:
    words = Text.assemble(
        ("  " + times(timed.ratio), f"bold {colour}"),
        (f" {span(timed.low, timed.high)} at {timed.confidence:.0%}", DIM),
    )
    room = min(48, width - len(words) - 1)
    if room < 12 or not 0 < timed.low <= timed.ratio <= timed.high:
        return [words]
    axis, labels = interval_plot(timed.ratio, timed.low, timed.high, room, colour).split("\n")
    return [axis + words, labels]


def _evidence(timed: Comparison, width: int) -> list[Text]:
    before, after = duration(timed.incumbent_us * 1e3), duration(timed.candidate_us * 1e3)
    cost = f"{before} → {after} a call, {timed.level} level"
    basis = f"n {timed.n}, {timed.launches} launches, floor {percent(timed.floor)}"
    return [Text(f"{cost} · {basis}", DIM)] if width >= _WIDE else [Text(cost, DIM), Text(basis, DIM)]


def _packing(verdict: Verdict) -> str:
    """Return what packing the weights cost; its time only where it was measured."""
    if not verdict.packed_bytes:
        return ""
    time = "" if verdict.prepare_ms is None else f"prepare {verdict.prepare_ms:.1f} ms, "
    return f" · {time}packed {size(verdict.packed_bytes)}"
