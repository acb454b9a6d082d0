"""Time that ops of a CPU spend themselves, without the ops nested in them, per thread."""

from __future__ import annotations

import numpy as np

from kernelwright.profiles.events import OPS, RANGES, Events, Flags, Integers
from kernelwright.profiles.spans import groups

_COMPILED = "## Call CompiledFxGraph"
"""A range in which Inductor's fused code runs, which is no op: what ops leave of it is that code's time."""


def are_ops(events: Events) -> Flags:
    """Return which rows are work of a CPU with a sound duration: ops, and calls of compiled graphs."""
    compiled = np.array([name.startswith(_COMPILED) for name in events.pool.names], np.bool_)
    ops: Flags = events.within(OPS)
    if compiled.any():
        ops = ops | (events.within(RANGES) & compiled[events.name])
    return ops & (events.dur >= 0)


def find_ops(events: Events) -> Integers:
    """Return the rows of `are_ops`."""
    return np.flatnonzero(are_ops(events))


def self_times(events: Events, rows: Integers, within: tuple[int, int] | None = None) -> Integers:
    """Return for each of `rows` its duration less that of the rows nested in it, ns; shape [len(rows)].

    Each moment belongs to the op of its thread that started last and still runs: the self times of a thread sum to the
    union of its ops, also where ops cross. Only what is `within` two times counts, where they are given. One sweep per
    thread.
    """
    start, end, lane = events.ts[rows], events.end[rows], events.lane[rows]
    order = np.lexsort((-end, start, lane))
    own = np.zeros(len(rows), np.int64)
    for first, stop in groups(lane[order]):
        _sweep(order[first:stop], start, end, own, within or _ALWAYS)
    return own


_ALWAYS = (-(1 << 63), (1 << 63) - 1)


def _sweep(order: Integers, start: Integers, end: Integers, own: Integers, within: tuple[int, int]) -> None:
    first, last = within
    stack: list[tuple[int, int]] = []
    now = 0

    def advance(until: int | None) -> None:
        """Give the time up to `until` (None: all that is left) to the ops that run."""
        nonlocal now
        while stack and (until is None or now < until):
            position, ends = stack[-1]
            if ends > now:
                reached = ends if until is None else min(ends, until)
                own[position] += max(min(reached, last) - max(now, first), 0)
                now = reached
            if ends <= now:
                stack.pop()
        now = now if until is None else max(now, until)

    for position, begin, ends in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        advance(begin)
        now = begin if not stack else now
        stack.append((position, ends))
    advance(None)
