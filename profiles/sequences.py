"""Steps in a trace that names none: kernels that come again and again in the same order."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np

from kernelwright.profiles.events import Integers

LEAST_REPEATS = 3
LEAST_KERNELS = 4
"""A step has at least so many."""
REGULAR = 0.5
"""Share of the distances between a kernel's launches that must be equal for it to mark the steps."""
OUTSIDE = "outside"


def find_sequences(names: Integers) -> tuple[list[str], Integers]:
    """Return for each of the kernels `names` (numbers, in order of time) its sequence: `sequence 1 of 46 kernels`, and
    the number of its step, -1 for none.

    A kernel that comes once per step marks where steps begin: of those whose distances are mostly equal the one whose
    repeated steps cover most, then the rarest. Steps of the same kernels in the same order are one sequence; what is
    left is looked through again. What is in no repeated step is `outside`.
    """
    labels, steps_of, count = [OUTSIDE] * len(names), np.full(len(names), -1, np.int64), 0
    numbers: dict[bytes, int] = {}
    runs = [(0, len(names))]
    while runs:
        begin, end = runs.pop()
        steps = _find_steps(names[begin:end])
        if not steps:
            continue
        for a, b in steps:
            number = numbers.setdefault(names[begin + a : begin + b].tobytes(), len(numbers) + 1)
            labels[begin + a : begin + b] = [f"sequence {number} of {b - a} kernels"] * (b - a)
            steps_of[begin + a : begin + b] = count
            count += 1
        edges = [0, *(edge for step in steps for edge in step), end - begin]
        runs += [(begin + a, begin + b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    return labels, steps_of


def _find_steps(names: Integers) -> list[tuple[int, int]]:
    """Return (first, stop) of the repeated steps that the best mark makes; none where no kernel comes regularly."""
    order = np.argsort(names, kind="stable")
    _, first, counts = np.unique(names[order], return_index=True, return_counts=True)
    best: list[tuple[int, int]] = []
    key = (0, 0)
    for at, count in zip(first.tolist(), counts.tolist(), strict=True):
        if count < LEAST_REPEATS or 2 * count > len(names):
            continue
        marks = order[at : at + count]
        common = Counter(np.diff(marks).tolist()).most_common(1)[0]
        if common[1] < REGULAR * (count - 1):
            continue
        steps = _repeated(names, marks.tolist(), common[0])
        covered = (sum(b - a for a, b in steps), -len(steps))
        if covered > key:
            best, key = steps, covered
    return best


def _repeated(names: Integers, marks: list[int], usual: int) -> list[tuple[int, int]]:
    """Return the steps between `marks` whose kernels come more than once; nothing marks the end of the last one."""
    steps = [*itertools.pairwise(marks), (marks[-1], min(marks[-1] + usual, len(names)))]
    kinds = Counter(names[a:b].tobytes() for a, b in steps)
    return [(a, b) for a, b in steps if b - a >= LEAST_KERNELS and kinds[names[a:b].tobytes()] > 1]
