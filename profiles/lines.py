"""Where device work comes from, in words: names instead of rows, so that what another trace knows can be borrowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from kernelwright.profiles.events import Events, Indices, Integers
from kernelwright.profiles.modules import module_paths
from kernelwright.profiles.origin import Origin

UNKNOWN, LAUNCH, CAPTURE, EAGER, ORDER = range(5)
HOW = ("", "launch", "capture", "eager", "order")
"""How a line is known: by the launch itself, by the launch while the graph was captured (its kernel's name the same),
by an eager trace of the same step, by the order of launches alone (those of CUDA name no kernel)."""


@dataclass(frozen=True, slots=True)
class Lines:
    """One entry per row of device work asked for; indices into `texts`, where 0 is '': unknown."""

    texts: tuple[str, ...]
    source: Indices
    """`path(line): function`, the innermost frame that belongs neither to a library nor to a benchmark."""
    frame: Indices
    """The innermost frame of a Python file."""
    module: Indices
    """`nn.Module: Class_N`."""
    path: Indices
    """Classes of the modules around it, outermost first, one per line."""
    op: Indices
    inputs: Indices
    """Shapes and types of the op's inputs, as in `Pool.inputs`."""
    call: Integers
    """Which call of the op: equal numbers are kernels of one call; -1: none known."""
    how: Indices
    """Index into HOW."""

    def __len__(self) -> int:
        return len(self.how)


class Loan(NamedTuple):
    """Which entries of another trace's lines stand for which of ours."""

    ours: Integers
    theirs: Integers
    how: int
    replay: Integers
    """Number of the replay each is of, so that calls of two replays stay two; shape as `ours`."""


def name_lines(events: Events, origin: Origin, paths: bool = False) -> Lines:
    """Return the names behind the rows of `origin`; `paths` of modules only where asked for, as they cost time."""
    names, inputs = events.pool.names, events.pool.inputs
    frame = _frame_names(events, origin.frame)
    op = origin.op
    known = op >= 0
    modules, member = np.unique(origin.module if paths else np.full(len(op), -1), return_inverse=True)
    trees = module_paths(events, modules)
    texts = ("", *names, *inputs, *dict.fromkeys(path for path in trees if path))
    numbers = {text: i for i, text in enumerate(texts) if i > len(names) + len(inputs)}
    given = np.where(known, events.inputs[op] if len(events) else -1, -1)
    return Lines(
        texts=texts,
        source=_frame_names(events, origin.source),
        frame=frame,
        module=_frame_names(events, origin.module),
        path=np.array([numbers.get(path, 0) for path in trees], np.int32)[member],
        op=np.where(known, events.name[op] + 1 if len(events) else 0, 0).astype(np.int32),
        inputs=np.where(given >= 0, given + 1 + len(names), 0).astype(np.int32),
        call=op.astype(np.int64),
        how=np.where(frame > 0, LAUNCH, UNKNOWN).astype(np.int32),
    )


def borrow(lines: Lines, theirs: Lines, loans: Sequence[Loan]) -> Lines:
    """Return `lines` with the entries that `loans` names taken from `theirs`."""
    shift = len(lines.texts) - 1
    columns = {f.name: getattr(lines, f.name).copy() for f in fields(lines) if f.name != "texts"}
    base = int(max(lines.call.max(initial=-1), 0)) + 1
    width = int(max(theirs.call.max(initial=-1), 0)) + 1
    for loan in loans:
        for name in ("source", "frame", "module", "path", "op", "inputs"):
            taken = getattr(theirs, name)[loan.theirs]
            columns[name][loan.ours] = np.where(taken > 0, taken + shift, 0)
        call = theirs.call[loan.theirs]
        columns["call"][loan.ours] = np.where(call >= 0, base + loan.replay * width + call, -1)
        columns["how"][loan.ours] = np.where(theirs.how[loan.theirs] != UNKNOWN, loan.how, UNKNOWN)
    return replace(lines, texts=(*lines.texts, *theirs.texts[1:]), **columns)


def _frame_names(events: Events, rows: Integers) -> Indices:
    if not len(events.frames):
        return np.zeros(len(rows), np.int32)
    return np.where(rows >= 0, events.frames.name[rows] + 1, 0).astype(np.int32)
