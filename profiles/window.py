"""Cut a trace to a window of time: what ran in it, for as long as it did."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from kernelwright.profiles.attribution import Work
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.events import Events, Flags, Integers
from kernelwright.profiles.self_time import are_ops

_TEXT = re.compile(r"(\d+(?:\.\d+)?)?:(\d+(?:\.\d+)?)?")


class Window(NamedTuple):
    """Times on the clock of the trace, ns."""

    start: int
    end: int


def parse_window(text: str, events: Events) -> Window:
    """Return the window that `text` names: `FROM:TO` in ms since the first event of `events`, either may be left out.

    It ends where the trace does. Raises WrongUse when it is written otherwise, or holds nothing of the trace.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise WrongUse(
            f"{text!r} is no window", "write FROM:TO in ms since the first event, e.g. 100:250, 100: or :250"
        )
    first, last = _extent(events)
    start = first + round(float(match[1]) * 1e6) if match[1] else first
    end = min(first + round(float(match[2]) * 1e6), last) if match[2] else last
    if start >= end:
        raise WrongUse(
            f"nothing of the trace is between {text} ms", f"it lasts {(last - first) / 1e6:.3f} ms: name a part of that"
        )
    return Window(start, end)


def first_ns(events: Events) -> int:
    """Return when the first event of a trace begins, on its clock."""
    return _extent(events)[0]


def _extent(events: Events) -> tuple[int, int]:
    times = [(table.ts, table.dur) for table in (events, events.frames)]
    ts, dur = (np.concatenate(parts) for parts in zip(*times, strict=True))
    timed = (ts != 0) | (dur != 0)  # profilers write zeros for times they do not know
    if not timed.any():
        return 0, 0
    return int(ts[timed].min()), int((ts + np.maximum(dur, 0))[timed].max())


def cut_ops(events: Events, window: Window) -> Events:
    """Return `events` with the ops of a CPU cut to `window`: to be done before their self times are told."""
    return _cut(events, are_ops(events), window)[0]


def cut_work(work: Work, window: Window) -> Work:
    """Return the `work` of a device that ran within `window`, with what is known of it from the whole trace."""
    events, row_of = _cut(work.events, (work.events.is_kernel | work.events.is_memop) & (work.events.dur >= 0), window)

    def rows(old: Integers) -> Integers:
        return np.where(old >= 0, row_of[old], -1)

    kept = row_of[work.origin.work] >= 0
    origin, lines = work.origin, work.lines
    columns = {f.name: getattr(origin, f.name)[kept] for f in fields(origin)}
    columns |= {name: rows(columns[name]) for name in ("work", "launch", "op", "step")}
    return replace(
        work,
        events=events,
        origin=replace(origin, **columns),
        lines=replace(lines, **{f.name: getattr(lines, f.name)[kept] for f in fields(lines) if f.name != "texts"}),
        phase=work.phase[kept],
    )


def _cut(events: Events, work: Flags, window: Window) -> tuple[Events, Integers]:
    """Return `events` with the rows `work` cut to `window`, and for each row its new one, -1 where it is left out."""
    start, end = np.maximum(events.ts, window.start), np.minimum(events.end, window.end)
    # work without a length belongs to the moment it has
    kept = ~work | (start < end) | ((events.dur == 0) & (events.ts >= window.start) & (events.ts < window.end))
    row_of = np.where(kept, np.cumsum(kept) - 1, -1)
    ts, dur = np.where(work, start, events.ts), np.where(work, end - start, events.dur)
    columns = {name: getattr(events, name)[kept] for name in _COLUMNS}
    return replace(events, **columns | {"ts": ts[kept], "dur": dur[kept]}), row_of


_COLUMNS = (
    "name", "category", "lane", "correlation", "external", "stream", "inputs", "graph", "captured", "collective",
    "size",
)  # fmt: skip
