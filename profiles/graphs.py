"""Follow the kernels of a CUDA/HIP graph replay to Python, by a trace of its capture or of an eager run of its step.

A replay is one launch of hundreds of kernels without ops, frames or shapes of their own. The launches recorded while
the graph was captured are, in order, the kernels of each replay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.events import Events, Integers
from kernelwright.profiles.lines import CAPTURE, EAGER, ORDER, Lines, Loan, borrow, name_lines
from kernelwright.profiles.origin import Origin, trace_launches
from kernelwright.profiles.phases import parse_step
from kernelwright.profiles.spans import groups

LEAST_SHARE = {CAPTURE: 0.5, EAGER: 0.9}
"""A replay of which less than this is found in a sequence is of another graph, or another step."""
NAMELESS = -1


class GraphTime(BaseModel, frozen=True, extra="forbid"):
    """Kernels launched as parts of graphs, and how many of them were followed to a line."""

    launches: int
    kernels: int
    kernel_ns: int
    joined: int
    """Kernels found in a trace of the capture, in an eager one, or by order."""
    joined_ns: int
    names_equal: int
    """Of those, kernels whose name the launch they were joined with has, too."""

    @classmethod
    def none(cls) -> GraphTime:
        return cls(launches=0, kernels=0, kernel_ns=0, joined=0, joined_ns=0, names_equal=0)


class Tape(NamedTuple):
    """Kernels in order whose lines are known."""

    names: Integers
    """Numbers of kernel names in the join's vocabulary; NAMELESS where the launch does not tell. Shape [n]."""
    entries: Integers
    """Entries of the donor's lines."""
    tokens: int
    """Tokens of the step it is of; 0 unknown."""


class Donor(NamedTuple):
    """A trace that knows where kernels come from."""

    lines: Lines
    names: tuple[str, ...]
    """Kernel names, one per entry of `lines`; '' where the launch does not tell."""
    steps: tuple[tuple[int, Integers], ...]
    """Tokens of a step, and its entries in order of time."""
    how: int


def is_capture(events: Events) -> bool:
    """Return whether `events` were recorded while graphs were captured."""
    ranges = any((step := parse_step(name)) and step.phase == "capture" for name in events.pool.names)
    return ranges or any("StreamBeginCapture" in name for name in events.pool.names)


def find_captured(events: Events) -> Integers:
    """Return the rows of launches that put a kernel into a graph instead of running it, in order of time."""
    launching = np.array(["Launch" in name and "Graph" not in name for name in events.pool.names], np.bool_)
    if not len(launching):
        return np.zeros(0, np.int64)
    ran = np.unique(events.correlation[events.is_kernel | events.is_memop])
    rows = np.flatnonzero(events.is_launch & launching[events.name] & ~np.isin(events.correlation, ran))
    return rows[np.argsort(events.ts[rows], kind="stable")]


def capture_donor(events: Events, paths: bool = False) -> Donor | None:
    """Return what a trace of a graph's capture knows; None if it is not one."""
    if not is_capture(events):
        return None
    launches = find_captured(events)
    if not len(launches):
        return None
    origin = trace_launches(events, launches)
    names = tuple(events.pool.names[n] if n >= 0 else "" for n in events.captured[launches].tolist())
    return Donor(name_lines(events, origin, paths), names, tuple(_steps(events, origin)), CAPTURE)


def eager_donor(events: Events, origin: Origin, lines: Lines) -> Donor | None:
    """Return what the eagerly launched kernels of a trace know; None if it has none with a line."""
    if not np.any((lines.frame > 0) & ~origin.replayed):
        return None
    names = tuple(events.pool.names[n] for n in events.name[origin.work].tolist())
    return Donor(lines, names, tuple(_steps(events, origin, ~origin.replayed)), EAGER)


def _steps(events: Events, origin: Origin, chosen: np.ndarray | None = None) -> Iterator[tuple[int, Integers]]:
    """Yield the entries of each step in order of time; those outside every step are one of their own."""
    entries = np.flatnonzero(chosen) if chosen is not None else np.arange(len(origin.work))
    order = entries[np.lexsort((events.ts[origin.work[entries]], origin.step[entries]))]
    for first, stop in groups(origin.step[order]):
        row = int(origin.step[order[first]])
        step = parse_step(events.pool.names[events.name[row]]) if row >= 0 else None
        yield (step.tokens if step else 0), order[first:stop]


def join_graphs(events: Events, origin: Origin, lines: Lines, donors: Sequence[Donor]) -> tuple[Lines, GraphTime]:
    """Return `lines` with those of replayed kernels taken from `donors`, the first that fits, and what was found."""
    replays = list(_replays(events, origin))
    found = np.zeros(len(lines), np.bool_)
    equal = 0
    for donor in donors:
        open_replays = [replay for replay in replays if not found[replay.entries].any()]
        loans, same = _match(events, origin, open_replays, donor)
        for loan in loans:
            found[loan.ours] = True
        equal += same
        if loans:
            lines = borrow(lines, donor.lines, loans)
    dur = events.dur[origin.work]
    kernels = origin.replayed
    return lines, GraphTime(
        launches=len(replays), kernels=int(kernels.sum()), kernel_ns=int(dur[kernels].sum()),
        joined=int(found.sum()), joined_ns=int(dur[found].sum()), names_equal=equal,
    )  # fmt: skip


class _Replay(NamedTuple):
    entries: Integers
    """Entries of `origin`, in order of time."""
    step: int
    tokens: int


def _replays(events: Events, origin: Origin) -> Iterator[_Replay]:
    entries = np.flatnonzero(origin.replayed)
    start = events.ts[origin.work[entries]]
    order = entries[np.lexsort((start, origin.launch[entries]))]
    bounds = groups(origin.launch[order])
    for first, stop in sorted(bounds, key=lambda b: int(events.ts[origin.launch[order[b[0]]]])):
        row = int(origin.step[order[first]])
        step = parse_step(events.pool.names[events.name[row]]) if row >= 0 else None
        yield _Replay(order[first:stop], row, step.tokens if step else 0)


def _match(events: Events, origin: Origin, replays: list[_Replay], donor: Donor) -> tuple[list[Loan], int]:
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(donor.names))}
    numbers = np.array([vocabulary[name] if name else NAMELESS for name in donor.names], np.int64)
    tapes = [Tape(numbers[entries], entries, tokens) for tokens, entries in donor.steps]
    ours = np.array([vocabulary.get(name, len(vocabulary)) for name in events.pool.names], np.int64)
    sizes = Counter[int]()
    for replay in replays:
        sizes[replay.step] += len(replay.entries)
    cursors: dict[int, int] = defaultdict(int)
    known: dict[tuple[int, int, bytes], Integers] = {}
    loans, equal = [], 0
    for number, replay in enumerate(replays):
        wanted = ours[events.name[origin.work[replay.entries]]]
        best, at = np.full(len(wanted), -1, np.int64), -1
        for i in sorted(range(len(tapes)), key=lambda i: _distance(tapes[i].tokens, replay.tokens)):
            whole = sizes[replay.step] == len(tapes[i].names)
            key = (i, cursors[i], wanted.tobytes())
            if key not in known:
                known[key] = align(tapes[i].names, wanted, cursors[i], nameless_fits=whole)
            if (known[key] >= 0).sum() > (best >= 0).sum():
                best, at = known[key], i
            if (best >= 0).all():
                break
        hits = best >= 0
        if not hits.any() or hits.mean() < LEAST_SHARE[donor.how]:
            continue
        tape = tapes[at]
        cursors[at] = (int(best.max()) + 1) % len(tape.names)
        nameless = tape.names[best[hits]] == NAMELESS
        equal += int((~nameless).sum())
        how = ORDER if nameless.any() else donor.how
        mine = replay.entries[hits]
        loans.append(Loan(mine, tape.entries[best[hits]], how, np.full(len(mine), number, np.int64)))
    return loans, equal


def _distance(have: int, want: int) -> tuple[bool, int]:
    """Sort key: the smallest capture that holds `want` tokens first, since steps are padded up to captured sizes."""
    return (have < want, abs(have - want)) if have and want else (True, 1 << 40)


def align(tape: Integers, wanted: Integers, cursor: int = 0, *, nameless_fits: bool = False) -> Integers:
    """Return for each of `wanted` the position on `tape` it was recorded at, -1 for none; shape [len(wanted)].

    At `cursor` if the names there are the same, else at the next place where they are; else occurrence by occurrence
    where both hold the same names in another order (branches of a graph run at once), else by the longest common
    parts. NAMELESS positions match any name, if `nameless_fits`.
    """
    n = len(wanted)
    if not n or not len(tape):
        return np.full(n, -1, np.int64)
    if n <= len(tape):
        windows = np.lib.stride_tricks.sliding_window_view(tape, n)
        same = windows == wanted
        if nameless_fits:
            same |= windows == NAMELESS
        places = np.flatnonzero(same.all(axis=1))
        if len(places):
            place = places[np.searchsorted(places, cursor) % len(places)]
            return np.arange(place, place + n, dtype=np.int64)
        for place in {cursor, 0}:
            if place + n <= len(tape) and np.array_equal(np.sort(tape[place : place + n]), np.sort(wanted)):
                order = np.argsort(tape[place : place + n], kind="stable")
                found = np.empty(n, np.int64)
                found[np.argsort(wanted, kind="stable")] = order + place
                return found
    found = np.full(n, -1, np.int64)
    for a, b, size in SequenceMatcher(None, tape.tolist(), wanted.tolist(), autojunk=False).get_matching_blocks():
        found[b : b + size] = np.arange(a, a + size)
    return found
