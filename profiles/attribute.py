"""Attribute step time to slots: a sorted sweep over the engine's own ranges in a trace.

The engine names its ranges `step|<phase>|<tokens>|<num_seqs>` and `slot|<definition>|<phase>|<tokens>|<layer>`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events
from kernelwright.profiles.profile import Phase

HOST_CATEGORIES = ("user_annotation", "cpu_op")


class Range(NamedTuple):
    """One named range of the engine, e.g. `slot|q4_1_linear_n960_k576|decode|1|12`."""

    kind: Literal["step", "slot"]
    definition: str
    """Empty for a step."""
    phase: Phase
    tokens: int
    number: int
    """Layer of a slot, number of sequences of a step."""


class SlotKey(NamedTuple):
    definition: str
    phase: Phase
    tokens: int


@dataclass(slots=True)
class SlotSum:
    calls: int = 0
    self_ns: int = 0


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where the step time went, ns: `sum(slots.self_ns) + unattributed_ns == busy_ns`, exactly."""

    slots: dict[SlotKey, SlotSum]
    steps: dict[Phase, int]
    step_ns: dict[Phase, int]
    busy_ns: int
    unattributed_ns: int
    decode_step_ns: tuple[int, ...]
    """Durations of the decode steps with one sequence, in order of time."""
    outside: int
    """Slot ranges outside every step (warm-up, load); not counted in any sum."""
    clipped: int
    """Ranges that ran past the end of their parent and were cut there."""


class _Span(NamedTuple):
    start: int
    end: int
    range: Range


@dataclass(slots=True)
class _Open:
    """A range on the stack: `nested` is the time its children took so far."""

    start: int
    end: int
    range: Range
    nested: int = 0


@dataclass(slots=True)
class _Sums:
    slots: dict[SlotKey, SlotSum] = field(default_factory=lambda: defaultdict(SlotSum))
    steps: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(get_args(Phase), 0))
    step_ns: dict[Phase, int] = field(default_factory=lambda: dict.fromkeys(get_args(Phase), 0))
    unattributed_ns: int = 0
    decode_step_ns: list[tuple[int, int]] = field(default_factory=list)
    outside: int = 0
    clipped: int = 0


def parse_range(name: str) -> Range | None:
    """Return the range that `name` spells, None if it is not one of ours. Raises BrokenInput when it is misspelt."""
    kind, _, rest = name.partition("|")
    if kind not in ("step", "slot"):
        return None
    parts = rest.split("|")
    try:
        definition, phase, tokens, number = parts if kind == "slot" else ("", *parts)
        if phase not in get_args(Phase):
            raise ValueError(f"unknown phase {phase!r}")
        return Range(kind, definition, phase, int(tokens), int(number))  # type: ignore[arg-type]
    except ValueError as error:
        raise BrokenInput(
            f"range {name!r} in the trace is not `step|phase|tokens|num_seqs` or `slot|definition|phase|tokens|layer`: "
            f"{error}",
            "profile with an engine of this version",
        ) from error


def attribute(trace: Events) -> Attribution:
    """Return the self time of every slot inside the engine's steps.

    Raises BrokenInput when the trace has no step, a range of negative length, or steps that nest.
    """
    sums = _Sums()
    for spans in _spans_by_lane(trace):
        _sweep(spans, sums)
    if not any(sums.steps.values()):
        raise BrokenInput(
            "the trace holds no `step|…` range: it is not of this engine, or no request ran in the window",
            "start the profiler, send requests, stop the profiler",
        )
    return Attribution(
        slots=dict(sums.slots),
        steps=sums.steps,
        step_ns=sums.step_ns,
        busy_ns=sum(sums.step_ns.values()),
        unattributed_ns=sums.unattributed_ns,
        decode_step_ns=tuple(ns for _, ns in sorted(sums.decode_step_ns)),
        outside=sums.outside,
        clipped=sums.clipped,
    )


def _spans_by_lane(trace: Events) -> Iterable[list[_Span]]:
    """Yield our ranges of each thread, sorted by start, the longer first.

    At equal start and length a step comes before a slot and else the order of the file decides.
    """
    ranges = {i: parsed for i, name in enumerate(trace.pool.names) if (parsed := parse_range(name))}
    categories = [i for i, name in enumerate(trace.pool.categories) if name in HOST_CATEGORIES]
    chosen = np.flatnonzero(np.isin(trace.name, list(ranges)) & np.isin(trace.category, categories))
    if np.any(trace.dur[chosen] < 0):
        raise BrokenInput("a range of the engine has a negative duration", "take the trace again")
    is_slot = np.isin(trace.name[chosen], [i for i, parsed in ranges.items() if parsed.kind == "slot"])
    order = np.lexsort((is_slot, -trace.dur[chosen], trace.ts[chosen], trace.lane[chosen]))
    chosen = chosen[order]
    lanes = trace.lane[chosen]
    for rows in np.split(chosen, np.flatnonzero(np.diff(lanes)) + 1):
        starts = trace.ts[rows].tolist()
        ends = (trace.ts[rows] + trace.dur[rows]).tolist()
        names = trace.name[rows].tolist()
        yield [_Span(start, end, ranges[name]) for start, end, name in zip(starts, ends, names, strict=True)]


def _sweep(spans: list[_Span], sums: _Sums) -> None:
    """Add the self times of one thread's sorted `spans` to `sums`; each span is pushed and popped once."""
    stack: list[_Open] = []
    for start, end, named in spans:
        while stack and (stack[-1].end < start or (stack[-1].end == start < end)):
            _close(stack, sums)
        if named.kind == "step" and stack:
            raise BrokenInput("steps of the engine nest or overlap on one thread", "profile one engine per trace")
        if named.kind == "slot" and not stack:
            sums.outside += 1
            continue
        if stack and end > stack[-1].end:
            # profilers may write a range that outlives its parent; cut there, so that no time counts twice
            end = stack[-1].end
            sums.clipped += 1
        stack.append(_Open(start, end, named))
    while stack:
        _close(stack, sums)


def _close(stack: list[_Open], sums: _Sums) -> None:
    closed = stack.pop()
    total = closed.end - closed.start
    own = total - closed.nested
    if stack:
        stack[-1].nested += total
    named = closed.range
    if named.kind == "slot":
        slot = sums.slots[SlotKey(named.definition, named.phase, named.tokens)]
        slot.calls += 1
        slot.self_ns += own
        return
    sums.steps[named.phase] += 1
    sums.step_ns[named.phase] += total
    sums.unattributed_ns += own
    if named.phase == "decode" and named.number == 1:
        sums.decode_step_ns.append((closed.start, total))
