"""All that can be said of where the work of a trace comes from: launches, lines, graphs, phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from kernelwright.profiles.device_time import sound_kernels
from kernelwright.profiles.events import OPS, RANGES, Events, Indices, Integers
from kernelwright.profiles.graphs import Donor, GraphTime, capture_donor, eager_donor, join_graphs
from kernelwright.profiles.lines import Lines, name_lines
from kernelwright.profiles.origin import Origin, trace_back, trace_launches
from kernelwright.profiles.phases import parse_step
from kernelwright.profiles.self_time import find_ops, self_times
from kernelwright.profiles.sequences import find_sequences

DeviceKind = Literal["cuda", "rocm", "gpu", "cpu", "none"]
NO_PHASE = "outside"
"""Phase of work launched outside every range that names a step of an engine."""
BEFORE = "before the window"
"""Phase of work whose launch is not in the trace: it was launched before the profiler began, or the record is lost."""


@dataclass(frozen=True)
class Work:
    """The work of a trace, one entry per kernel (on a GPU) or op (on a CPU), in the order of the table."""

    events: Events
    """As read; for a CPU the durations of ops are their self times."""
    origin: Origin
    lines: Lines
    phase: Indices
    """One per entry: an index into `phases`."""
    phases: tuple[str, ...]
    round: Integers
    """One per entry: the number of the step of a repeated sequence that it is of; -1: of none."""
    graphs: GraphTime
    device: DeviceKind

    @cached_property
    def ns(self) -> Integers:
        """Time of each entry, ns."""
        return self.events.dur[self.origin.work]

    @cached_property
    def names(self) -> Indices:
        """Name of each entry, an index into `events.pool.names`."""
        return self.events.name[self.origin.work]

    @property
    def known(self) -> np.ndarray:
        """Whether a line of Python is known, per entry."""
        known: np.ndarray = self.lines.frame > 0
        return known


def attribute_work(events: Events, donors: Sequence[Donor] = (), paths: bool = False) -> Work:
    """Return the work of `events`; `donors` (a capture, an eager run) tell where replayed kernels are from.

    `paths`: with the modules around each piece of work.
    """
    device = tell_device(events)
    if device in ("cpu", "none"):
        rows = find_ops(events)
        origin = replace(trace_launches(events, rows), op=rows)
        lines = name_lines(events, origin, paths)
        own = events.dur.copy()
        own[rows] = self_times(events, rows)
        # where others that it calls take most of an op's time, its least work is theirs
        lines = replace(lines, inputs=np.where(2 * own[rows] > events.dur[rows], lines.inputs, 0).astype(np.int32))
        events, graphs = replace(events, dur=own), GraphTime.none()
    else:
        origin = trace_back(events, np.flatnonzero(sound_kernels(events)))
        lines = name_lines(events, origin, paths)
        own_donors = [donor for donor in (capture_donor(events), eager_donor(events, origin, lines)) if donor]
        lines, graphs = join_graphs(events, origin, lines, [*donors, *own_donors])
    return Work(events, origin, lines, *name_phases(events, origin, device), graphs, device)


def tell_device(events: Events) -> DeviceKind:
    """Return the vendor by the names of launches, `cpu` where there are ops or ranges and no device work."""
    if not (events.is_kernel.any() or events.is_memop.any()):
        return "cpu" if events.within(OPS | RANGES).any() else "none"
    names = [events.pool.names[n] for n in np.unique(events.name[events.is_launch])]
    if any(name.startswith("hip") for name in names):
        return "rocm"
    return "cuda" if any(name.startswith("cu") for name in names) else "gpu"


def name_phases(events: Events, origin: Origin, device: DeviceKind) -> tuple[Indices, tuple[str, ...], Integers]:
    """Return the phase of each entry, an index into the names of phases, those, and the round of each entry.

    Where no range names a phase, it is the repeated sequence that the entry is of.
    """
    steps = [parse_step(name) for name in events.pool.names]
    words = {BEFORE: 0, NO_PHASE: 1}
    named = [words.setdefault(step.phase, len(words)) if step else 1 for step in steps]
    phase = np.full(len(origin.work), words[NO_PHASE], np.int32)
    inside = origin.step >= 0
    phase[inside] = np.array(named, np.int32)[events.name[origin.step[inside]]]
    phase[origin.launch < 0] = words[BEFORE]
    rounds = np.full(len(phase), -1, np.int64)
    if device != "cpu" and len(phase) and not any(steps):
        order = np.argsort(events.ts[origin.work], kind="stable")
        found, rounds[order] = find_sequences(events.name[origin.work][order].astype(np.int64))
        labels = np.array([words.setdefault(label, len(words)) for label in found], np.int32)
        phase[order] = np.where(labels == words[NO_PHASE], phase[order], labels)
    return phase, tuple(words), rounds
