"""LatestEvents: the last few facts, where there is room for them; and how one fact looks on a line."""

from __future__ import annotations

import re
import time

from rich.console import RenderableType
from rich.text import Text

from kernelwright.agent import events as e
from kernelwright.tui.palette import DIM, FAINT, GREEN, OUTCOMES, RED, TEXT
from kernelwright.tui.view import SessionView
from kernelwright.tui.widgets.view_widget import ViewWidget
from kernelwright.tui.words import sentence

_MOST = 40


class LatestEvents(ViewWidget):
    """Newest first, so that what does not fit is what is oldest."""

    def draw(self, view: SessionView, width: int) -> RenderableType:
        facts = [event for _, event in view.events[-10 * _MOST :] if not isinstance(event, e.ProgressMade)]
        return Text("\n").join(log_line(event) for event in reversed(facts[-_MOST:]))


def log_line(event: e.Event) -> Text:
    """Return one line: local time, what happened, and its particulars."""
    colour = TEXT
    if isinstance(event, e.CandidateJudged):
        colour = OUTCOMES[event.outcome]
    elif isinstance(event, e.KernelAccepted | e.PatchCommitted) or (isinstance(event, e.GateFinished) and event.passed):
        colour = GREEN
    elif isinstance(event, e.GateFinished):
        colour = RED
    what = re.sub(r"(?<!^)(?=[A-Z])", " ", event.kind).capitalize()
    return Text.assemble(
        (time.strftime("%H:%M:%S  ", time.localtime(event.at)), FAINT), (what.ljust(19), colour), (sentence(event), DIM)
    )
