"""Cut a trace to a window of time: what ran in it, for as long as it did, with what the whole trace tells of it."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from kernelwright.profiles.attribution import Work
from kernelwright.profiles.devices import Device
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.events import Events, Flags, Integers
from kernelwright.profiles.headroom import Floats, Floors, find_floors
from kernelwright.profiles.lines import CAPTURE, EAGER, UNKNOWN
from kernelwright.profiles.self_time import are_ops, self_times
from kernelwright.profiles.summary import TraceSummary, name_peaks, summarise_work

_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)?"
_TEXT = re.compile(f"{_NUMBER}:{_NUMBER}")


class Window(NamedTuple):
    """Times on the clock of the trace, ns. `last`: nothing comes behind it."""

    start: int
    end: int
    last: bool = False


def parse_window(text: str, events: Events) -> Window:
    """Return the window that `text` names: `FROM:TO` in ms since the first event of `events`, either may be left out.

    It ends where the trace does. Raises WrongUse when it is written otherwise, or holds nothing of the trace.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise WrongUse(f"{text!r} is no window", "write FROM:TO in ms since the first event: 100:250, 100: or :250")
    first, last = _extent(events)
    start = first + round(float(match[1]) * 1e6) if match[1] else first
    end = min(first + round(float(match[2]) * 1e6), last) if match[2] else last
    if start >= end:
        raise WrongUse(
            f"nothing of the trace is between {text} ms", f"it lasts {(last - first) / 1e6:.3f} ms: name a part of that"
        )
    return Window(start, end, last=end == last)


def _extent(events: Events) -> tuple[int, int]:
    times = [(table.ts, table.dur) for table in (events, events.frames)]
    ts, dur = (np.concatenate(parts) for parts in zip(*times, strict=True))
    timed = (ts != 0) | (dur != 0)  # profilers write zeros for times they do not know
    if not timed.any():
        return 0, 0
    return int(ts[timed].min()), int((ts + np.maximum(dur, 0))[timed].max())


def summarise_window(
    work: Work, events: Events, window: Window, device: Device | None = None
) -> tuple[TraceSummary, Work]:
    """Return the summary of what of `work`, the attributed work of the trace `events`, ran in `window`, with it."""
    floors = find_floors(work.events, work.origin, work.lines, name_peaks(work, events, device))
    first, _ = _extent(events)
    part, cut_events, kept, share = _cut_work(work, events, window)
    stated = (window.start - first, window.end - first)
    return summarise_work(part, cut_events, device, stated, _cut_floors(floors, kept, share)), part


def _cut_floors(floors: Floors, kept: Flags, share: Floats) -> Floors:
    """Return the least times of the entries `kept`, of each the part that its time in the window is of all its time."""
    return replace(
        floors, ns=floors.ns[kept] * share, flops=floors.flops[kept] * share, bytes=floors.bytes[kept] * share,
        bound=floors.bound[kept],
    )  # fmt: skip


def _cut_work(work: Work, events: Events, window: Window) -> tuple[Work, Events, Flags, Floats]:
    """Return the work in `window`, its events, which entries it is, and the share of its time that each has there."""
    on_cpu = work.device in ("cpu", "none")
    ran = are_ops(events) if on_cpu else (events.is_kernel | events.is_memop) & (events.dur >= 0)
    cut, row_of = _cut(events, ran, window)
    kept = row_of[work.origin.work] >= 0
    rows = row_of[work.origin.work[kept]]
    whole, ns = work.ns[kept], cut.dur[rows]
    if on_cpu:
        ns = self_times(events, work.origin.work, (window.start, window.end))[kept]
    part = _pick(work, cut, kept, row_of)
    if on_cpu:
        own = cut.dur.copy()
        own[rows] = ns
        part = replace(part, events=replace(cut, dur=own))
    share = np.divide(ns, whole, out=np.ones(len(ns)), where=whole > 0)
    return part, cut, kept, share


def _pick(work: Work, events: Events, kept: Flags, row_of: Integers) -> Work:
    """Return the entries `kept` of `work`, whose rows are those of the cut `events`."""
    origin, lines = work.origin, work.lines
    columns = {f.name: getattr(origin, f.name)[kept] for f in fields(origin)}
    for name in ("work", "launch", "op", "step"):
        columns[name] = np.where(columns[name] >= 0, row_of[columns[name]], -1)
    part = replace(
        work,
        events=events,
        origin=replace(origin, **columns),
        lines=replace(lines, **{f.name: getattr(lines, f.name)[kept] for f in fields(lines) if f.name != "texts"}),
        phase=work.phase[kept],
        round=work.round[kept],
    )
    return replace(part, graphs=work.graphs.model_copy(update=_count_replays(part)))


def _count_replays(work: Work) -> dict[str, int]:
    replayed, how = work.origin.replayed, work.lines.how
    joined = replayed & (how != UNKNOWN)
    return {
        "launches": len(np.unique(work.origin.launch[replayed])), "kernels": int(replayed.sum()),
        "kernel_ns": int(work.ns[replayed].sum()), "joined": int(joined.sum()), "joined_ns": int(work.ns[joined].sum()),
        "names_equal": int((joined & ((how == CAPTURE) | (how == EAGER))).sum()),
    }  # fmt: skip


def _cut(events: Events, work: Flags, window: Window) -> tuple[Events, Integers]:
    """Return `events` with the rows `work` cut to `window`, and for each row its new one, -1 where it is left out."""
    start, end = np.maximum(events.ts, window.start), np.minimum(events.end, window.end)
    # work without a length belongs to the moment it has
    moment = (events.dur == 0) & (events.ts >= window.start) & (events.ts < window.end + window.last)
    kept = ~work | (start < end) | moment
    row_of = np.where(kept, np.cumsum(kept) - 1, -1)
    ts, dur = np.where(work, start, events.ts), np.where(work, end - start, events.dur)
    columns = {name: getattr(events, name)[kept] for name in _COLUMNS}
    return replace(events, **columns | {"ts": ts[kept], "dur": dur[kept]}), row_of


_COLUMNS = (
    "name", "category", "lane", "correlation", "external", "stream", "inputs", "graph", "captured", "collective",
    "size",
)  # fmt: skip
