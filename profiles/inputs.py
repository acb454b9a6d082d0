"""Tell the files given for a profile apart: traces, traces of a capture, other ranks, sums, counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernelwright.profiles.attribution import tell_device
from kernelwright.profiles.errors import CaptureGiven, WrongUse
from kernelwright.profiles.events import Events
from kernelwright.profiles.graphs import Donor, capture_donor, eager_donor, is_capture
from kernelwright.profiles.lines import name_lines
from kernelwright.profiles.ncu import KernelCounters
from kernelwright.profiles.nsys_csv import KernelSums
from kernelwright.profiles.origin import is_replay, names_steps, trace_back
from kernelwright.profiles.ranks import RankTrace, check_ranks, tell_rank
from kernelwright.profiles.trace import read_file


@dataclass
class Inputs:
    """What the files of one profile are."""

    traces: list[RankTrace] = field(default_factory=list)
    """Traces of the run itself, by rank."""
    donors: list[Donor] = field(default_factory=list)
    """What captures and eager runs know of replayed kernels."""
    captures: list[str] = field(default_factory=list)
    sums: list[tuple[str, KernelSums]] = field(default_factory=list)
    counters: list[KernelCounters] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lone_capture: RankTrace | None = None
    """The capture that was given where a replay was wanted."""


def open_inputs(paths: Sequence[Path], modules: bool = False) -> Inputs:
    """Return the files at `paths` sorted by what they are; with `modules` captures tell the modules around launches.

    Raises BrokenInput for a file that is none of what is read, MixedRanks when the traces cannot be of one run.
    """
    inputs, others = Inputs(), list[tuple[str, Events]]()
    for path in paths:
        found = read_file(path)
        if isinstance(found, KernelSums):
            inputs.sums.append((path.name, found))
        elif isinstance(found, Events):
            _sort(inputs, path.name, found, others, modules)
        else:
            inputs.counters += found
    _name_ranks(inputs, others, modules)
    return inputs


def _sort(inputs: Inputs, name: str, events: Events, others: list[tuple[str, Events]], modules: bool) -> None:
    if is_capture(events) and not is_replay(events)[np.flatnonzero(events.is_launch)].any():
        donor = capture_donor(events, modules)
        inputs.captures.append(name)
        if donor is not None:
            inputs.donors.append(donor)
        inputs.lone_capture = inputs.lone_capture or RankTrace(tell_rank(events, name) or 0, name, events)
    else:
        others.append((name, events))


def _name_ranks(inputs: Inputs, traces: list[tuple[str, Events]], modules: bool) -> None:
    """Set front ends and eager runs aside; the rest are ranks of one run."""
    if len(traces) > 1:
        traces = _leave_front_ends(inputs, traces)
    if len(traces) == 2:
        traces = _lend_eager(inputs, traces, modules)
    ranks = [tell_rank(events, name) for name, events in traces]
    if len(traces) > 1 and (None in ranks):
        unknown = traces[ranks.index(None)][0]
        raise WrongUse(
            f"{unknown} does not tell its rank, so it cannot be put beside the others",
            "to compare two runs use `kernelwright compare A B`; for ranks of one run name the files rank0…, rank1…",
        )
    inputs.traces = sorted(
        (RankTrace(rank or 0, name, events) for (name, events), rank in zip(traces, ranks, strict=True)),
        key=lambda trace: trace.rank,
    )
    check_ranks(inputs.traces)


def _leave_front_ends(inputs: Inputs, traces: list[tuple[str, Events]]) -> list[tuple[str, Events]]:
    """Return the traces of processes that run the model: on a GPU those with device work, else those with steps."""
    working = [tell_device(events) not in ("cpu", "none") for _, events in traces]
    what = "device work"
    if not any(working):
        working, what = [names_steps(events) for _, events in traces], "step of an engine"
    if any(working) and not all(working):
        idle = [name for (name, _), works in zip(traces, working, strict=True) if not works]
        inputs.notes.append(f"No {what} is in {', '.join(idle)}: a front end's trace, left aside.")
        return [trace for trace, works in zip(traces, working, strict=True) if works]
    return traces


def _lend_eager(inputs: Inputs, traces: list[tuple[str, Events]], modules: bool) -> list[tuple[str, Events]]:
    """Where one trace replays graphs and the other of its rank runs eagerly, that one tells where kernels are from."""
    (a, first), (b, second) = traces
    if tell_rank(first, a) != tell_rank(second, b):
        return traces
    replays = [bool(is_replay(events)[:-1].any()) for events in (first, second)]
    if replays[0] == replays[1]:
        return traces
    (_, _), (name, eager) = traces if replays[0] else traces[::-1]
    origin = trace_back(eager, np.flatnonzero(eager.is_kernel & (eager.dur >= 0)))
    donor = eager_donor(eager, origin, name_lines(eager, origin, modules))
    if donor is not None:
        inputs.donors.append(donor)
        inputs.notes.append(f"{name} runs eagerly: it tells where the replayed kernels of the other trace are from.")
    return [trace for trace in traces if trace[0] != name]


def refuse_lone_capture(inputs: Inputs) -> CaptureGiven | None:
    """Return the error to end with when only captures of graphs were given."""
    if inputs.traces or not inputs.captures:
        return None
    return CaptureGiven(
        f"{inputs.captures[0]} was recorded while graphs were captured: it holds launches, not the replayed kernels",
        "name the trace of the replay beside it: kernelwright profile REPLAY CAPTURE",
    )
