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
    steps, member = np.unique((work.round if sequence else work.origin.step)[mine], return_inverse=True)
    lengths = np.bincount(member, weights=work.ns[mine])
    order = np.argsort(lengths, kind="stable")
    if sequence:
        whole = np.bincount(member)[order] == int(sequence[1])  # a window cuts its first and last round
        order = order[whole] if whole.any() else order
    chosen = int(order[len(order) // 2])
    if sequence:
        return mine[member == chosen], f"{work.phases[phase]}, round {chosen + 1} of {len(steps)}"
    return mine[member == chosen], work.events.pool.names[work.events.name[steps[chosen]]]


def _longest_phase(work: Work) -> int | None:
    """Return the phase in which most time is, of those that are steps; None where there is none."""
    times = np.bincount(work.phase, weights=work.ns, minlength=len(work.phases))
    there = [i for i in np.unique(work.phase).tolist() if work.phases[i] not in (BEFORE, NO_PHASE)]
    return max(there, key=lambda i: float(times[i]), default=None)
