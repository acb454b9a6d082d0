"""Choose the step of a trace that stands for the others."""

from __future__ import annotations

import re

import numpy as np

from kernelwright.profiles.attribution import BEFORE, NO_PHASE, Work
from kernelwright.profiles.events import Integers

_SEQUENCE = re.compile(r"sequence \d+ of (\d+) kernels")


def choose_step(work: Work) -> tuple[Integers, str]:
    """Return (entries of `work`, what they are): the step of median length of the phase that takes longest.

    A step is what one range of an engine launched, or where no range names one, one round of a repeated sequence of
    kernels; all of the trace where there is neither.
    """
    phase = _longest_phase(work)
    if phase is None:
        return np.arange(len(work.phase)), "all of the trace"
    mine = np.flatnonzero(work.phase == phase)
    sequence = _SEQUENCE.fullmatch(work.phases[phase])
    if sequence:
        mine = mine[np.argsort(work.events.ts[work.origin.work[mine]], kind="stable")]
        member = np.arange(len(mine)) // int(sequence[1])
        chosen = _median(member, work.ns[mine])
        return mine[member == chosen], f"{work.phases[phase]}, round {chosen + 1} of {member[-1] + 1}"
    rows, member = np.unique(work.origin.step[mine], return_inverse=True)
    chosen = _median(member, work.ns[mine])
    return mine[member == chosen], work.events.pool.names[work.events.name[rows[chosen]]]


def _longest_phase(work: Work) -> int | None:
    if not len(work.phase):
        return None
    times = np.bincount(work.phase, weights=work.ns, minlength=len(work.phases))
    times[[i for i, name in enumerate(work.phases) if name in (BEFORE, NO_PHASE)]] = -1.0
    return int(times.argmax()) if times.max() >= 0 else None


def _median(member: Integers, ns: Integers) -> int:
    """Return the member whose time is the median of all."""
    lengths = np.bincount(member, weights=ns)
    return int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
