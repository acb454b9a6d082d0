"""Device work of a trace in plain numbers: counts, sums, unions, idle time, all in integer ns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.events import Events, Flags, Integers
from kernelwright.profiles.health import Health
from kernelwright.profiles.spans import groups, starts_early, union_ns

OVERFLOW = 10
"""A kernel that holds the whole next kernel of its stream and lasts this many times longer runs over its true end."""


class KernelTime(BaseModel, frozen=True, extra="forbid"):
    name: str
    count: int
    ns: int


class OneDevice(BaseModel, frozen=True, extra="forbid"):
    """The same numbers of one of several devices."""

    kernels: int
    kernel_ns: int
    busy_gpu_ns: int
    gpu_span_ns: int
    idle_fraction: float | None


class DeviceTime(BaseModel, frozen=True, extra="forbid"):
    """Sums over all device work of the file. Kernels without a time (`Health`) are in none of them."""

    kernels: int
    kernel_ns: int
    """Sum of the kernels' durations."""
    memops: int
    memop_ns: int
    distinct_names: int
    busy_kernel_ns: int
    """Length of the union of all kernels, over all streams."""
    busy_gpu_ns: int
    """The same with memory operations."""
    gpu_span_ns: int
    """The window that `idle_fraction` is of: last end minus first start of device work, or the one asked for."""
    idle_fraction: float | None
    overlap_ns: int
    """Sum of all durations minus `busy_gpu_ns`: what ran at once."""
    streams: int
    per_stream: Mapping[str, int]
    """Kernels by `device/stream`."""
    same_stream_overlaps: int
    """Kernels that start before an earlier one of their stream has ended, as dependent launches legally do."""
    kernels_without_correlation: int
    kernels_sharing_a_correlation: int
    """Kernels whose launch has more than one: replays of graphs."""
    kernels_with_no_launch_event: int
    no_launch_ns: int
    """Time of those: launched before the window, or their launch was not recorded."""
    zero_dur: int
    top: tuple[KernelTime, ...]
    """All kernels by name, the longest sum first."""
    per_device: Mapping[str, OneDevice] = {}
    """Where the file holds several devices."""


def sound_kernels(events: Events) -> Flags:
    """Return which rows are kernels whose time is known."""
    sound: Flags = events.is_kernel & (events.dur >= 0) & ~_has_no_time(events)
    return sound


def _has_no_time(events: Events) -> Flags:
    untimed: Flags = (events.ts == 0) & (events.dur == 0)
    return untimed


def has_launch(events: Events, rows: Integers) -> Flags:
    """Return which of `rows` have a launch event in the trace; shape [len(rows)]."""
    ids = np.unique(events.correlation[events.is_launch])
    correlation = events.correlation[rows]
    known: Flags = np.isin(correlation, ids) & (correlation != 0)
    return known


def measure_device(events: Events, window_ns: int | None = None) -> DeviceTime:
    """Return the plain numbers of all device work in `events`, which idles against `window_ns` where that is stated."""
    kernels = np.flatnonzero(sound_kernels(events))
    memops = np.flatnonzero(events.is_memop & (events.dur >= 0))
    work = np.concatenate((kernels, memops))
    start, end, dur = events.ts, events.end, events.dur
    span = window_ns or (int(end[work].max() - start[work].min()) if len(work) else 0)
    busy = union_ns(start[work], end[work])
    correlation = events.correlation[kernels]
    launched = has_launch(events, kernels)
    _, first, counts = np.unique(correlation, return_inverse=True, return_counts=True)
    top = rank_kernels(events, kernels)
    return DeviceTime(
        kernels=len(kernels),
        kernel_ns=int(dur[kernels].sum()),
        memops=len(memops),
        memop_ns=int(dur[memops].sum()),
        distinct_names=len(top),
        busy_kernel_ns=union_ns(start[kernels], end[kernels]),
        busy_gpu_ns=busy,
        gpu_span_ns=span,
        idle_fraction=round(1 - busy / span, 6) if span else None,
        overlap_ns=int(dur[work].sum()) - busy,
        streams=len(np.unique(events.stream[kernels])),
        per_stream=_count_streams(events, kernels),
        same_stream_overlaps=int(starts_early(events.lane[kernels], start[kernels], end[kernels]).sum()),
        kernels_without_correlation=int((correlation == 0).sum()),
        kernels_sharing_a_correlation=int(((counts[first] > 1) & (correlation != 0)).sum()),
        kernels_with_no_launch_event=int((~launched).sum()),
        no_launch_ns=int(dur[kernels][~launched].sum()),
        zero_dur=int((dur[kernels] == 0).sum()),
        top=top,
        per_device=_split_devices(events, kernels, work, window_ns),
    )


def _split_devices(events: Events, kernels: Integers, work: Integers, window_ns: int | None) -> dict[str, OneDevice]:
    """Return the numbers of each device by its name in the file; nothing where there is one."""
    device_of = [str(device) for device, _ in events.pool.streams]
    devices = sorted({device_of[s] for s in np.unique(events.stream[work]).tolist() if s >= 0})
    if len(devices) < 2:
        return {}
    number = np.array([devices.index(name) if name in devices else -1 for name in device_of], np.int32)
    times = {}
    for i, name in enumerate(devices):
        mine = work[number[events.stream[work]] == i]
        own = kernels[number[events.stream[kernels]] == i]
        start, end = events.ts[mine], events.end[mine]
        span, busy = window_ns or int(end.max() - start.min()), union_ns(start, end)
        times[name] = OneDevice(
            kernels=len(own), kernel_ns=int(events.dur[own].sum()), busy_gpu_ns=busy, gpu_span_ns=span,
            idle_fraction=round(1 - busy / span, 6) if span else None,
        )  # fmt: skip
    return times


def rank_kernels(events: Events, kernels: Integers) -> tuple[KernelTime, ...]:
    """Return count and time of each kernel name among the rows `kernels`: longest sum first, then first seen."""
    names, first, inverse = np.unique(events.name[kernels], return_index=True, return_inverse=True)
    counts = np.bincount(inverse, minlength=len(names))
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, inverse, events.dur[kernels])
    return tuple(
        KernelTime(name=events.pool.names[names[i]], count=int(counts[i]), ns=int(sums[i]))
        for i in np.lexsort((first, -sums))
    )


def _count_streams(events: Events, kernels: Integers) -> dict[str, int]:
    streams, counts = np.unique(events.stream[kernels], return_counts=True)
    named = {"/".join(map(str, events.pool.streams[s])): int(c) for s, c in zip(streams, counts, strict=True)}
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def examine_times(events: Events, health: Health) -> Health:
    """Return `health` with what the kernels' times tell: missing, negative, or running past their true end."""
    kernels = np.flatnonzero(sound_kernels(events))
    clipped, overflowing = _clip(events, kernels)
    found: dict[str, object] = {
        "kernels_with_zero_ts": int((events.is_kernel & _has_no_time(events)).sum()),
        "kernels_with_negative_dur": int((events.is_kernel & (events.dur < 0)).sum()),
    }
    if overflowing:
        raw = int(events.dur[kernels].sum())
        found |= {"kernel_ns_raw": raw, "kernel_ns_clipped": clipped}
        note = f"{overflowing} kernels run past whole kernels behind them on their stream: durations are not sound."
        found["notes"] = (*health.notes, note)
    return health.model_copy(update=found)


def _clip(events: Events, kernels: Integers) -> tuple[int, int]:
    """Return the sum of durations with overflowing kernels ended at the next start, and how many there were."""
    total, overflowing = 0, 0
    order = kernels[np.lexsort((events.end[kernels], events.ts[kernels], events.stream[kernels]))]
    for first, stop in groups(events.stream[order]):
        rows = order[first:stop]
        dur, ts, end = events.dur[rows].copy(), events.ts[rows], events.end[rows]
        over = (end[:-1] > end[1:]) & (dur[:-1] > OVERFLOW * np.maximum(dur[1:], 1)) & (ts[1:] > ts[:-1])
        dur[:-1][over] = (ts[1:] - ts[:-1])[over]
        total, overflowing = total + int(dur.sum()), overflowing + int(over.sum())
    return total, overflowing
