"""What a trace says in one record: device time, kernels, phases, the lines of Python it comes from, its health."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.device_time import DeviceTime, examine_times, measure_device, sound_kernels
from kernelwright.profiles.events import OPS, RANGES, Events, Indices, Integers
from kernelwright.profiles.health import Health
from kernelwright.profiles.origin import Origin, trace_back
from kernelwright.profiles.phases import parse_step
from kernelwright.profiles.spans import merge

_LAYER = re.compile(r"_\d+$")
NO_PHASE = "outside"
"""Phase of work launched outside every range that names a step of an engine."""
BEFORE = "before the window"
"""Phase of work whose launch is not in the trace: it was launched before the profiler began, or the record is lost."""


class PhaseTime(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    steps: int
    """Ranges that name a step of this phase and launched work."""
    kernels: int
    kernel_ns: int


class SourceTime(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    source: str
    """`path(line): function` of the innermost frame that is neither a library's nor a benchmark's; '' if unknown."""
    module: str
    """Class of the innermost `nn.Module`, over all its instances; '' if unknown."""
    kernels: int
    kernel_ns: int


class TraceSummary(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    schema_version: Literal[1] = 1
    device: Literal["cuda", "rocm", "gpu", "cpu", "none"]
    """Whose work the trace holds; `gpu`: of a vendor that its launches do not tell; `none`: neither kernels nor ops."""
    events: int
    time: DeviceTime
    phases: Mapping[str, PhaseTime]
    sources: tuple[SourceTime, ...]
    """Kernel time by line of Python and module, the longest first."""
    unattributed_ns: int
    """Kernel time of which no frame of Python is known: launched before the window, in a graph, or without stacks."""
    replayed_ns: int
    """Of that, what was launched as a part of a graph."""
    health: Health

    def flat(self) -> dict[str, object]:
        """Return the record as one flat JSON object: the numbers of `time` beside the others."""
        record = self.model_dump(mode="json")
        return {**record.pop("time"), **record}


def summarise(events: Events) -> TraceSummary:
    """Return what `events` say of device work and where it comes from."""
    kernels = np.flatnonzero(sound_kernels(events))
    origin = trace_back(events, kernels)
    known = origin.frame >= 0
    return TraceSummary(
        device=tell_device(events),
        events=events.num_events,
        time=measure_device(events),
        phases=sum_phases(events, origin),
        sources=sum_sources(events, origin),
        unattributed_ns=int(events.dur[kernels][~known].sum()),
        replayed_ns=int(events.dur[kernels][origin.replayed].sum()),
        health=examine_times(events, events.health),
    )


def tell_device(events: Events) -> Literal["cuda", "rocm", "gpu", "cpu", "none"]:
    """Return the vendor by the names of launches, `cpu` where there are ops or ranges and no device work."""
    if not (events.is_kernel.any() or events.is_memop.any()):
        return "cpu" if events.within(OPS | RANGES).any() else "none"
    names = [events.pool.names[n] for n in np.unique(events.name[events.is_launch])]
    if any(name.startswith("hip") for name in names):
        return "rocm"
    return "cuda" if any(name.startswith("cu") for name in names) else "gpu"


def sum_phases(events: Events, origin: Origin) -> dict[str, PhaseTime]:
    """Return kernels and time of each phase, the longest first."""
    phases = [parse_step(name) for name in events.pool.names]
    found: dict[str, list[int]] = defaultdict(list)
    for row, (launch, step) in enumerate(zip(origin.launch.tolist(), origin.step.tolist(), strict=True)):
        named = phases[events.name[step]] if step >= 0 else None
        found[BEFORE if launch < 0 else named.phase if named else NO_PHASE].append(row)
    times = {}
    for phase, rows in found.items():
        times[phase] = PhaseTime(
            steps=0 if phase in (BEFORE, NO_PHASE) else _count_steps(events, np.unique(origin.step[rows])),
            kernels=len(rows),
            kernel_ns=int(events.dur[origin.work[rows]].sum()),
        )
    return dict(sorted(times.items(), key=lambda item: -item[1].kernel_ns))


def _count_steps(events: Events, ranges: Integers) -> int:
    """Return how many steps the rows `ranges` are of: an engine may name one step by ranges within each other."""
    lanes = [ranges[events.lane[ranges] == lane] for lane in np.unique(events.lane[ranges])]
    return sum(len(merge(events.ts[rows], events.end[rows])[0]) for rows in lanes)


def sum_sources(events: Events, origin: Origin) -> tuple[SourceTime, ...]:
    """Return kernels and time by source line and module, the longest first."""
    shown = ("", *events.pool.names)
    kinds = [_LAYER.sub("", name.removeprefix("nn.Module: ")) for name in shown]
    sources, modules = _names(events, origin.source).tolist(), _names(events, origin.module).tolist()
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for source, module, ns in zip(sources, modules, events.dur[origin.work].tolist(), strict=True):
        entry = sums[shown[source + 1], kinds[module + 1]]
        entry[0] += 1
        entry[1] += ns
    return tuple(
        SourceTime(source=source, module=module, kernels=count, kernel_ns=ns)
        for (source, module), (count, ns) in sorted(sums.items(), key=lambda item: -item[1][1])
    )


def _names(events: Events, rows: Integers) -> Indices:
    """Return the name of each of the rows of `frames`, -1 for none."""
    if not len(events.frames):
        return np.full(len(rows), -1, np.int32)
    return np.where(rows >= 0, events.frames.name[rows], -1).astype(np.int32)
