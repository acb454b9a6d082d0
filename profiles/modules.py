"""The tree of `nn.Module` calls in a trace."""

from __future__ import annotations

import re

import numpy as np

from kernelwright.profiles.events import Events, Integers
from kernelwright.profiles.spans import groups

MODULE = "nn.Module: "
_LAYER = re.compile(r"_\d+$")


def module_class(name: str) -> str:
    """Return the class in a frame's name: `LlamaMLP` of `nn.Module: LlamaMLP_3`."""
    return _LAYER.sub("", name.removeprefix(MODULE))


def module_paths(events: Events, rows: Integers) -> list[str]:
    """Return for each of `rows` (of `frames`, -1: none) the classes of the modules around it, outermost first.

    One class per line of text; '' where there is none.
    """
    if not len(rows) or rows.max() < 0:
        return [""] * len(rows)
    parents = _parents(events)
    names = [module_class(name) if name.startswith(MODULE) else "" for name in events.pool.names]
    known: dict[int, str] = {-1: ""}

    def path(row: int) -> str:
        chain = []
        while row not in known:
            chain.append(row)
            row = parents[row]
        text = known[row]
        for one in reversed(chain):
            own = names[events.frames.name[one]]
            text = known[one] = f"{text}\n{own}" if text else own
        return text

    return [path(row) for row in rows.tolist()]


def _parents(events: Events) -> dict[int, int]:
    """Return the row of the module around each module frame, -1 for none."""
    frames = events.frames
    is_module = np.array([name.startswith(MODULE) for name in events.pool.names], np.bool_)
    rows = np.flatnonzero(is_module[frames.name])
    start, end = frames.ts[rows], frames.ts[rows] + frames.dur[rows]
    order = np.lexsort((-end, start, frames.lane[rows]))
    parents: dict[int, int] = {}
    for first, stop in groups(frames.lane[rows][order]):
        stack: list[tuple[int, int]] = []
        for at in order[first:stop].tolist():
            while stack and stack[-1][1] <= start[at]:
                stack.pop()
            row = int(rows[at])
            parents[row] = stack[-1][0] if stack else -1
            stack.append((row, int(end[at])))
    return parents
