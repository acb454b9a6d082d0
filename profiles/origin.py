"""Where device work comes from: kernel ← launch ← op ← module ← innermost Python frame ← step."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from kernelwright.profiles.events import OPS, RANGES, Events, Flags, Indices, Integers
from kernelwright.profiles.phases import parse_step
from kernelwright.profiles.spans import innermost

_RANK = re.compile(r"\[[^\]]*\]")
_MODULE = "nn.Module: "
_HARNESS = re.compile(
    r"(?:^|/)(?:bench\w*|test_\w+|conftest|run_\w+|\w*profil(?:e|er|ing)\w*|main|__main__)\.py\(|^<string>|(?:^|/)benchmarks?/"
)
_GENERATED = re.compile(
    r"/lib/python3|torchinductor_|/inductor_cache/|<eval_with_key>|: (?:__torch_\w+__|_?\w*_call_impl)$"
)
"""The standard library, code that a compiler writes anew, and what stands around every call."""
_LIBRARIES = (
    "torch/", "triton/", "triton_kernels/", "aiter/", "flashinfer/", "flash_attn/", "deep_gemm/", "sgl_kernel/",
    "torch_guard.py(", "xformers/", "numpy/", "threading.py(", "contextlib.py(", "functools.py(", "asyncio/",
    "multiprocessing/", "concurrent/", "importlib/", "runpy.py(", "uvloop/", "<frozen",
)  # fmt: skip
"""Beginnings of frames that call kernels for others: the line to rewrite is the one that called them."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One row per row of device work asked for; -1: unknown."""

    work: Integers
    """Rows of the event table."""
    launch: Integers
    """Row of the launch event."""
    op: Integers
    """Row of the innermost op around the launch."""
    module: Integers
    """Row of `frames`: the innermost `nn.Module` around the launch."""
    frame: Integers
    """Row of `frames`: the innermost frame of a Python file around the launch."""
    source: Integers
    """Row of `frames`: the innermost one that belongs neither to a library nor to a benchmark; else as `frame`."""
    step: Integers
    """Row of the innermost range around the launch that names a step of an engine (`parse_step`)."""
    replayed: Flags
    """Whether it was launched as a part of a graph: then op, module and frames of its own are not in this trace."""


def trace_back(events: Events, work: Integers) -> Origin:
    """Return where each of the rows `work` (kernels, memory operations) was launched."""
    return _look_around(events, work, find_launches(events, work))


def trace_launches(events: Events, launches: Integers) -> Origin:
    """Return the same of the rows `launches` themselves: those recorded while a graph was captured ran nothing."""
    return _look_around(events, launches, launches)


def _look_around(events: Events, work: Integers, launch: Integers) -> Origin:
    known = np.flatnonzero(launch >= 0)
    # several kernels of one graph have one launch: look each launch up once
    launches, inverse = np.unique(launch[known], return_inverse=True)
    point_lane, point = events.lane[launches], events.ts[launches]

    def around(rows: Integers, lane: Indices, start: Integers, dur: Integers) -> Integers:
        at = innermost(lane[rows], start[rows], start[rows] + dur[rows], point_lane, point)
        found = np.full(len(work), -1, np.int64)
        found[known] = np.where(at >= 0, rows[at], -1)[inverse] if len(rows) else -1
        return found

    frames = events.frames
    kinds = classify_frames(events.pool.names)

    def frame_around(kind: Flags) -> Integers:
        return around(np.flatnonzero(kind[frames.name]), frames.lane, frames.ts, frames.dur)

    def event_around(rows: Flags) -> Integers:
        return around(np.flatnonzero(rows), events.lane, events.ts, events.dur)

    replayed = is_replay(events)[launch] & (launch >= 0)

    def own(rows: Integers) -> Integers:
        return np.where(replayed, -1, rows)

    frame, source = frame_around(kinds.file), frame_around(kinds.source)
    return Origin(
        work=work, launch=launch, op=own(event_around(events.within(OPS))), module=own(frame_around(kinds.module)),
        frame=own(frame),
        source=own(np.where(source >= 0, source, frame)), step=event_around(_is_step(events)), replayed=replayed,
    )  # fmt: skip


def names_steps(events: Events) -> bool:
    """Return whether a range of the trace names a step of an engine."""
    return bool(_is_step(events).any())


def _is_step(events: Events) -> Flags:
    named = np.array([parse_step(name) is not None for name in events.pool.names], np.bool_)
    return events.within(RANGES) & named[events.name] if len(named) else np.zeros(len(events), np.bool_)


def is_replay(events: Events) -> Flags:
    """Return which rows launch a whole graph; one more flag stands behind the last row, for `no launch`."""
    names = np.array(["GraphLaunch" in name for name in events.pool.names], np.bool_)
    return np.append(names[events.name] & events.is_launch, False) if len(names) else np.zeros(1, np.bool_)


@dataclass(frozen=True, slots=True)
class FrameKinds:
    """Flags by index of `pool.names`."""

    module: Flags
    file: Flags
    source: Flags


def classify_frames(names: tuple[str, ...]) -> FrameKinds:
    """Tell modules, frames of Python files, and those of them that are neither a library's nor a benchmark's."""
    file = np.array([".py(" in name and not name.startswith(_MODULE) for name in names], np.bool_)
    source = np.array([bool(is_file) and is_source(name) for name, is_file in zip(names, file, strict=True)], np.bool_)
    module = np.array([name.startswith(_MODULE) for name in names], np.bool_)
    return FrameKinds(module, file, source)


def is_source(frame: str) -> bool:
    """Return whether the frame `path(line): function` is of code that one would rewrite."""
    path = re.sub(r"^.*?(?:site-packages|dist-packages)/", "", frame)
    return not path.startswith(_LIBRARIES) and not _HARNESS.search(path) and not _GENERATED.search(path)


def find_launches(events: Events, work: Integers) -> Integers:
    """Return for each of the rows `work` the row of its launch, -1 for none; shape [len(work)].

    The last launch of the same id (and rank, in files merged of several) that began before the work did: ids start
    again when one file holds several windows. A launch that begins later serves where there is no earlier one.
    """
    launches = np.flatnonzero(events.is_launch & (events.correlation != 0))
    found = np.full(len(work), -1, np.int64)
    asked = np.flatnonzero(events.correlation[work] != 0)
    if not len(launches) or not len(asked):
        return found
    rows = np.concatenate((launches, work[asked]))
    is_work = np.concatenate((np.zeros(len(launches), np.bool_), np.ones(len(asked), np.bool_)))
    key, rank = events.correlation[rows], _ranks(events)[events.lane[rows]]
    order = np.lexsort((is_work, events.ts[rows], key, rank))
    position = np.arange(len(order))
    key, rank, is_work = key[order], rank[order], is_work[order]
    starts = np.concatenate(([True], (key[1:] != key[:-1]) | (rank[1:] != rank[:-1])))
    group = np.maximum.accumulate(np.where(starts, position, 0))
    before = np.maximum.accumulate(np.where(is_work, -1, position))
    behind = np.minimum.accumulate(np.where(is_work, len(order), position)[::-1])[::-1]
    stop = np.append(np.flatnonzero(starts)[1:], len(order))[np.cumsum(starts) - 1]
    best = np.where(before >= group, before, np.where(behind < stop, behind, -1))
    mine = np.flatnonzero(is_work)
    found[asked[order[mine] - len(launches)]] = np.where(best[mine] >= 0, rows[order[best[mine]]], -1)
    return found


def _ranks(events: Events) -> Indices:
    """Return a number for the rank of each lane: merged files mark their processes `[TP00-DP00] 83`."""
    marks = [m.group() if (m := _RANK.match(str(pid))) else "" for pid, _ in events.pool.lanes]
    numbers = {mark: i for i, mark in enumerate(dict.fromkeys(marks))}
    return np.array([numbers[mark] for mark in marks], np.int32)
