"""Sums of a trace's work by phase, by family and by line of Python."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.attribution import BEFORE, NO_PHASE, Work
from kernelwright.profiles.events import Events, Integers
from kernelwright.profiles.families import Operation, classify
from kernelwright.profiles.grouping import group_rows
from kernelwright.profiles.headroom import Floors
from kernelwright.profiles.spans import merge

_LAYER = re.compile(r"_\d+$")


class PhaseTime(BaseModel, frozen=True, extra="forbid"):
    steps: int
    """Ranges that name a step of this phase and launched work."""
    kernels: int
    """Kernels, or ops of a CPU."""
    kernel_ns: int


class FamilyTime(BaseModel, frozen=True, extra="forbid"):
    operation: Operation
    kernels: int
    names: int
    """Different kernels in it."""
    ns: int
    modelled_ns: int
    """Time of those whose least work is known."""
    least_ns: float | None
    """Their time at the roofline; None: no model."""
    libraries: tuple[str, ...]
    """The longest time first."""


class SourceTime(BaseModel, frozen=True, extra="forbid"):
    source: str
    """`path(line): function` of the innermost frame that is neither a library's nor a benchmark's; '' if unknown."""
    module: str
    """Class of the innermost `nn.Module`, over all its instances; '' if unknown."""
    kernels: int
    kernel_ns: int


def sum_phases(work: Work) -> dict[str, PhaseTime]:
    """Return work and time of each phase, the longest first."""
    times = {}
    for number in np.unique(work.phase).tolist():
        phase, entries = work.phases[number], np.flatnonzero(work.phase == number)
        steps = np.unique(work.origin.step[entries])
        times[phase] = PhaseTime(
            steps=0 if phase in (BEFORE, NO_PHASE) else _count_steps(work.events, steps[steps >= 0]),
            kernels=len(entries),
            kernel_ns=int(work.ns[entries].sum()),
        )
    return dict(sorted(times.items(), key=lambda item: -item[1].kernel_ns))


def _count_steps(events: Events, ranges: Integers) -> int:
    """Return how many steps the rows `ranges` are of: an engine may name one step by ranges within each other."""
    # the durations of ranges are untouched where those of ops are their self times
    lanes = [ranges[events.lane[ranges] == lane] for lane in np.unique(events.lane[ranges])]
    return sum(len(merge(events.ts[rows], events.end[rows])[0]) for rows in lanes)


def sum_families(work: Work, floors: Floors) -> tuple[FamilyTime, ...]:
    """Return the time of each operation family, the longest first; `other` is one of them, never left out."""
    kinds, member = group_rows(work.names, work.lines.op)
    names = work.events.pool.names
    families = [classify(names[name], work.lines.texts[op]) for name, op in kinds.tolist()]
    modelled = ~np.isnan(floors.ns)
    count, ns, known, least = (
        np.bincount(member, weights=weights, minlength=len(kinds))
        for weights in (None, work.ns, work.ns * modelled, np.nan_to_num(floors.ns))
    )
    rows: dict[Operation, list[int]] = defaultdict(list)
    for i, family in enumerate(families):
        rows[family.operation].append(i)
    times = []
    for operation, mine in rows.items():
        by_library: dict[str, float] = defaultdict(float)
        for i in mine:
            by_library[families[i].library] += ns[i]
        times.append(
            FamilyTime(
                operation=operation, kernels=int(count[mine].sum()), names=len({int(kinds[i][0]) for i in mine}),
                ns=int(ns[mine].sum()), modelled_ns=int(known[mine].sum()),
                least_ns=float(least[mine].sum()) if known[mine].any() else None,
                libraries=tuple(sorted(by_library, key=lambda name: -by_library[name])),
            )
        )  # fmt: skip
    return tuple(sorted(times, key=lambda time: -time.ns))


def sum_sources(work: Work) -> tuple[SourceTime, ...]:
    """Return kernels and time by source line and module, the longest first."""
    texts = work.lines.texts
    kinds, member = group_rows(work.lines.source, work.lines.module)
    count, ns = (np.bincount(member, weights=weights, minlength=len(kinds)) for weights in (None, work.ns))
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for i, (source, module) in enumerate(kinds.tolist()):
        entry = sums[texts[source], _LAYER.sub("", texts[module].removeprefix("nn.Module: "))]
        entry[0] += int(count[i])
        entry[1] += int(ns[i])
    return tuple(
        SourceTime(source=source, module=module, kernels=count, kernel_ns=ns)
        for (source, module), (count, ns) in sorted(sums.items(), key=lambda item: -item[1][1])
    )
