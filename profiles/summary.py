"""What a trace says in one record: device time, kernels, phases, families, lines of Python, targets, its health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.attribution import DeviceKind, Work, attribute_work
from kernelwright.profiles.device_time import DeviceTime, KernelTime, examine_times, measure_device, rank_kernels
from kernelwright.profiles.devices import Device
from kernelwright.profiles.events import Events
from kernelwright.profiles.gaps import Gaps, find_gaps
from kernelwright.profiles.graphs import Donor, GraphTime
from kernelwright.profiles.headroom import Floors, find_floors, tell_gpu
from kernelwright.profiles.health import Health
from kernelwright.profiles.kernel_target import KernelTarget, rank_kernel_targets
from kernelwright.profiles.lines import HOW
from kernelwright.profiles.spans import union_ns
from kernelwright.profiles.sums import FamilyTime, PhaseTime, SourceTime, sum_families, sum_phases, sum_sources


class CpuTime(BaseModel, frozen=True, extra="forbid"):
    """Work of a CPU: ops, by the time they spend themselves."""

    ops: int
    threads: int
    """Threads with an op."""
    busy_ns: int
    """Union of the ops of each thread, summed over threads: the sum of all self times."""
    span_ns: int
    top: tuple[KernelTime, ...]
    """Ops by name with their self time, the longest sum first."""


class TraceSummary(BaseModel, frozen=True, extra="forbid"):
    schema_version: Literal[2] = 2
    device: DeviceKind
    """Whose work the trace holds; `gpu`: of a vendor that its launches do not tell; `none`: neither kernels nor ops."""
    gpu: str
    """Device (GPU, or processor where that was asked for) whose peaks the headroom is against; '' unknown."""
    events: int
    window_ns: tuple[int, int] | None
    """What was asked for of the trace, since its first event; None: all of it."""
    time: DeviceTime
    cpu: CpuTime | None
    """Where there is no device work."""
    phases: Mapping[str, PhaseTime]
    families: tuple[FamilyTime, ...]
    sources: tuple[SourceTime, ...]
    """Time by line of Python and module, the longest first."""
    unattributed_ns: int
    """Time of work of which no frame of Python is known: launched before the window, in a graph, or without stacks."""
    replayed_ns: int
    """Time of kernels launched as parts of graphs."""
    attributed: Mapping[str, int]
    """Time by how its line is known: `launch`, `capture`, `eager`, `order`."""
    graphs: GraphTime
    gaps: Gaps
    targets: tuple[KernelTarget, ...]
    """Every kernel (or op of a CPU) by name, the best to work on first, those excluded behind them."""
    health: Health

    def flat(self) -> dict[str, object]:
        """Return the record as one flat JSON object: the numbers of `time` beside the others."""
        record = self.model_dump(mode="json")
        return {**record.pop("time"), **record}

    @property
    def work_ns(self) -> int:
        """What shares are of: the time of all kernels, or the busy time of a CPU."""
        return self.cpu.busy_ns if self.cpu else self.time.kernel_ns


def summarise(events: Events, donors: Sequence[Donor] = (), device: Device | None = None) -> TraceSummary:
    """Return what `events` say. `donors` tell where replayed kernels are from, `device` which GPU it was."""
    return summarise_work(attribute_work(events, donors), events, device)


def summarise_work(
    work: Work,
    events: Events,
    device: Device | None = None,
    window_ns: tuple[int, int] | None = None,
    floors: Floors | None = None,
) -> TraceSummary:
    """Return the summary of `work`, the attributed work of the trace `events`.

    `window_ns` is what both are cut to, `floors` then the least times of what is left (`window.py`).
    """
    gpu = name_peaks(work, events, device)
    floors = floors or find_floors(work.events, work.origin, work.lines, gpu)
    length = window_ns[1] - window_ns[0] if window_ns else None
    how = np.bincount(work.lines.how, weights=work.ns, minlength=len(HOW)).astype(np.int64).tolist()
    launch_of = np.full(len(events), -1, np.int64)
    launch_of[work.origin.work] = work.origin.launch
    return TraceSummary(
        device=work.device,
        gpu=gpu.name if gpu else "",
        events=events.num_events,
        window_ns=window_ns,
        time=measure_device(events, None if work.device in ("cpu", "none") else length),
        cpu=_measure_cpu(work, events, length) if work.device == "cpu" else None,
        phases=sum_phases(work),
        families=sum_families(work, floors),
        sources=sum_sources(work),
        unattributed_ns=int(work.ns[~work.known].sum()),
        replayed_ns=int(work.ns[work.origin.replayed].sum()),
        attributed={name: ns for name, ns in zip(HOW, how, strict=True) if name and ns},
        graphs=work.graphs,
        gaps=find_gaps(events, launch_of),
        targets=rank_kernel_targets(work, floors),
        health=examine_times(events, events.health),
    )


def name_peaks(work: Work, events: Events, asked: Device | None) -> Device | None:
    """Return the device whose peaks the least times of `work` are against; None: unknown."""
    return asked if work.device in ("cpu", "none") else tell_gpu(events, asked)


def _measure_cpu(work: Work, events: Events, window_ns: int | None) -> CpuTime:
    rows = work.origin.work
    start, end, lane = events.ts[rows], events.end[rows], events.lane[rows]
    lanes = np.unique(lane)
    return CpuTime(
        ops=len(rows),
        threads=len(lanes),
        busy_ns=sum(union_ns(start[lane == one], end[lane == one]) for one in lanes),
        span_ns=window_ns or (int(end.max() - start.min()) if len(rows) else 0),
        top=rank_kernels(work.events, rows),
    )
