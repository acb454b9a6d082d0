"""Traces of several ranks of one run: clocks aligned on the ends of collectives, waiting told from transfer."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.device_time import sound_kernels
from kernelwright.profiles.errors import MixedRanks
from kernelwright.profiles.events import Events, Integers
from kernelwright.profiles.families import classify
from kernelwright.profiles.spans import union_ns

_RANK_IN_NAME = re.compile(r"(?:rank|TP|worker)[-_ ]?(\d+)", re.IGNORECASE)
_ONE_SIDED = re.compile(r"broadcast|send(?!recv)|(?<!send)recv|scatter(?!.*reduce)|_p2p", re.IGNORECASE)
"""Collectives whose ranks need not end together."""
LEAST_MATCHES = 1


class RankTime(BaseModel, frozen=True, extra="forbid"):
    rank: int
    file: str
    kernels: int
    kernel_ns: int
    busy_ns: int
    """Union of all kernels."""
    span_ns: int
    collectives: int
    """Those that every rank has."""
    collective_ns: int
    wait_ns: int
    """Of that, what passed before the last rank had come."""
    transfer_ns: int
    offset_ns: int
    """This rank's clock minus that of the first rank, by the ends of collectives."""


class Ranks(BaseModel, frozen=True, extra="forbid"):
    ranks: tuple[RankTime, ...]
    matched: int
    """Collectives found in every rank."""
    unmatched: int
    """Collectives that not every rank has, over all ranks: profilers begin and end at different steps."""
    spread_ns: int
    """Median distance between the first and the last end of a collective once clocks are aligned: how far the
    alignment can be trusted."""
    slowest: int
    """The rank the others wait for: it waits least."""


class RankTrace(NamedTuple):
    rank: int
    file: str
    events: Events


def tell_rank(events: Events, file_name: str) -> int | None:
    """Return the rank that the header or, failing that, the file's name tells; None if neither does."""
    info = events.header.get("distributedInfo")
    if isinstance(info, Mapping) and isinstance(info.get("rank"), int):
        return int(info["rank"])
    found = _RANK_IN_NAME.search(file_name)
    return int(found[1]) if found else None


def check_ranks(traces: Sequence[RankTrace]) -> None:
    """Raise MixedRanks when the traces cannot be of one run: a rank twice, or worlds of different sizes."""
    doubled = [rank for rank, count in Counter(trace.rank for trace in traces).items() if count > 1]
    if doubled:
        files = ", ".join(trace.file for trace in traces if trace.rank == doubled[0])
        raise MixedRanks(f"rank {doubled[0]} is there twice: {files}", "name one trace of each rank of one run")
    worlds = {
        trace.file: info["world_size"]
        for trace in traces
        if isinstance(info := trace.events.header.get("distributedInfo"), Mapping) and "world_size" in info
    }
    if len(set(worlds.values())) > 1:
        said = ", ".join(f"{file}: {size}" for file, size in worlds.items())
        raise MixedRanks(f"mixed ranks: the traces are of worlds of different sizes ({said})", "name traces of one run")


def compare_ranks(traces: Sequence[RankTrace]) -> Ranks:
    """Return the time of each rank, its waiting split from transfer. Raises MixedRanks where `check_ranks` does, and
    when the ranks have no collective in common.
    """
    check_ranks(traces)
    traces = sorted(traces, key=lambda trace: trace.rank)
    found = [_collectives(trace.events) for trace in traces]
    common, unmatched = _match(found)
    if len(common) < LEAST_MATCHES:
        raise MixedRanks(
            "mixed ranks: the traces have no collective in common", "name traces of one run, profiled at the same steps"
        )
    rows = [np.array([ranks[key] for key in common], np.int64) for ranks in found]
    starts = np.array([t.events.ts[r] for t, r in zip(traces, rows, strict=True)])
    ends = np.array([t.events.end[r] for t, r in zip(traces, rows, strict=True)])
    together = np.array([not _ONE_SIDED.search(name) for name, *_ in common], np.bool_)
    fit = together if together.any() else np.ones(len(common), np.bool_)
    offsets = np.array([int(np.median(ends[r][fit] - ends[0][fit])) for r in range(len(traces))], np.int64)
    starts, ends = starts - offsets[:, None], ends - offsets[:, None]
    length = ends - starts
    wait = np.clip(starts.max(axis=0) - starts, 0, length)
    times = [
        _rank_time(trace, row, int(waiting.sum()), int(total.sum()), int(offset))
        for trace, row, waiting, total, offset in zip(traces, rows, wait, length, offsets, strict=True)
    ]
    spread = int(np.median(ends.max(axis=0)[fit] - ends.min(axis=0)[fit]))
    slowest = min(times, key=lambda time: time.wait_ns).rank
    return Ranks(ranks=tuple(times), matched=len(common), unmatched=unmatched, spread_ns=spread, slowest=slowest)


_Key = tuple[str, str, int]


def _collectives(events: Events) -> dict[_Key, int]:
    """Return the row of each collective kernel by (name, what it moved, how many of these came before it)."""
    names = events.pool.names
    collective = np.array([classify(name).operation == "collective" for name in names], np.bool_)
    if not len(names):
        return {}
    rows = np.flatnonzero(sound_kernels(events) & collective[events.name])
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    seen: dict[tuple[str, str], int] = defaultdict(int)
    found: dict[_Key, int] = {}
    for row in rows.tolist():
        moved = events.pool.collectives[events.collective[row]] if events.collective[row] >= 0 else ""
        kind = (names[events.name[row]], moved)
        found[(*kind, seen[kind])] = row
        seen[kind] += 1
    return found


def _match(found: Sequence[dict[_Key, int]]) -> tuple[list[_Key], int]:
    common = [key for key in found[0] if all(key in other for other in found[1:])]
    return common, sum(len(rank) - len(common) for rank in found)


def _rank_time(trace: RankTrace, rows: Integers, wait: int, total: int, offset: int) -> RankTime:
    events = trace.events
    kernels = np.flatnonzero(sound_kernels(events))
    start, end = events.ts[kernels], events.end[kernels]
    return RankTime(
        rank=trace.rank, file=trace.file, kernels=len(kernels), kernel_ns=int(events.dur[kernels].sum()),
        busy_ns=union_ns(start, end), span_ns=int(end.max() - start.min()) if len(kernels) else 0,
        collectives=len(rows), collective_ns=total, wait_ns=wait, transfer_ns=total - wait, offset_ns=offset,
    )  # fmt: skip
