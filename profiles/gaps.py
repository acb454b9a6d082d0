"""Idle time of a device: the gaps between its kernels, how long they are and what stands around them."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.device_time import sound_kernels
from kernelwright.profiles.events import Events, Integers

EDGES_US = (1, 2, 5, 10, 20, 50, 100, 1000, 10000)
MOST_GAPS = 10


class GapBucket(BaseModel, frozen=True, extra="forbid"):
    below_us: int | None
    """Upper end; None: without one."""
    count: int
    ns: int


class Gap(BaseModel, frozen=True, extra="forbid"):
    ns: int
    at_ns: int
    """When it begins, from the first work on."""
    before: str
    """Name of the work that ends where it begins."""
    after: str
    waited_for_launch: bool | None
    """Whether the work behind it was launched only within it: the host was late. None: its launch is unknown."""


class Gaps(BaseModel, frozen=True, extra="forbid"):
    count: int
    ns: int
    late_ns: int
    """Time in gaps whose next work had not been launched when they began: the host was late."""
    buckets: tuple[GapBucket, ...]
    longest: tuple[Gap, ...]


def find_gaps(events: Events, launch_of: Integers) -> Gaps:
    """Return the gaps in the union of all device work; `launch_of` gives the launch of each row, -1 for none."""
    rows = np.flatnonzero(sound_kernels(events) | (events.is_memop & (events.dur >= 0)))
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    if len(rows) < 2:
        return Gaps(count=0, ns=0, late_ns=0, buckets=(), longest=())
    start, end = events.ts[rows], events.end[rows]
    reached = np.maximum.accumulate(end)
    last = np.maximum.accumulate(np.where(end == reached, np.arange(len(rows)), 0))
    length = start[1:] - reached[:-1]
    at = np.flatnonzero(length > 0)
    ns = length[at]
    launch = launch_of[rows[at + 1]]
    late = (launch >= 0) & (events.ts[launch] > reached[at])
    names = events.pool.names
    longest = tuple(
        Gap(
            ns=int(ns[i]), at_ns=int(reached[at[i]] - start[0]), before=names[events.name[rows[last[at[i]]]]],
            after=names[events.name[rows[at[i] + 1]]], waited_for_launch=bool(late[i]) if launch[i] >= 0 else None,
        )
        for i in np.argsort(-ns, kind="stable")[:MOST_GAPS].tolist()
    )  # fmt: skip
    return Gaps(
        count=len(at), ns=int(ns.sum()), late_ns=int(ns[late].sum()), buckets=_bucket(ns), longest=longest,
    )  # fmt: skip


def _bucket(ns: np.ndarray) -> tuple[GapBucket, ...]:
    which = np.searchsorted(np.array(EDGES_US) * 1000, ns, "right")
    return tuple(
        GapBucket(below_us=edge, count=int((which == i).sum()), ns=int(ns[which == i].sum()))
        for i, edge in enumerate((*EDGES_US, None))
    )
