"""Compare two traces: what became slower or faster, per phase and kernel."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel

from kernelwright.profiles.summary import TraceSummary

Change = Literal["slower", "faster", "same", "new", "gone"]
SAME = 0.02
"""A kernel whose time per step differs by less is called the same."""
_HASH = re.compile(r"\b[0-9a-f]{8,}\b|(?<=_)[0-9a-f]{16,}")
_NUMBER = re.compile(r"(?<=[a-z])_\d+$")


class Row(BaseModel, frozen=True, extra="forbid"):
    name: str
    before_count: int
    after_count: int
    before_ns: float
    """Time per step where both traces name steps, else in the whole trace."""
    after_ns: float
    change: Change

    @property
    def delta_ns(self) -> float:
        return self.after_ns - self.before_ns


class Comparison(BaseModel, frozen=True, extra="forbid"):
    schema_version: Literal[1] = 1
    per: Literal["step", "trace"]
    """What times are of."""
    before_steps: int
    after_steps: int
    before_ns: float
    after_ns: float
    ratio: float | None
    """After ÷ before: above 1 the second is slower. None: there is no work in the first."""
    phases: tuple[Row, ...]
    """Each per step of its own phase."""
    kernels: tuple[Row, ...]
    """The largest change first."""
    notes: tuple[str, ...] = ()


def stable_name(name: str) -> str:
    """Return `name` without what changes from build to build: hashes, and the running number of Inductor's kernels."""
    name = _HASH.sub("#", name)
    return _NUMBER.sub("", name) if name.startswith("triton_") else name


def compare_summaries(before: TraceSummary, after: TraceSummary) -> Comparison:
    """Return what changed from `before` to `after`, per step where both name their steps."""
    steps = [sum(p.steps for p in summary.phases.values()) for summary in (before, after)]
    per_step = all(steps)
    scales = [1.0 / n if per_step else 1.0 for n in steps]
    first, second = (_sum_names(summary) for summary in (before, after))
    kernels = [
        _row(name, first.get(name, (0, 0)), second.get(name, (0, 0)), scales)
        for name in dict.fromkeys([*first, *second])
    ]
    total = [summary.work_ns * scale for summary, scale in zip((before, after), scales, strict=True)]
    notes = []
    if before.gpu != after.gpu or before.device != after.device:
        notes.append(f"Different devices: {before.gpu or before.device} and {after.gpu or after.device}.")
    if steps[0] != steps[1]:
        notes.append(f"{steps[0]} steps before, {steps[1]} after.")
    return Comparison(
        per="step" if per_step else "trace", before_steps=steps[0], after_steps=steps[1], before_ns=total[0],
        after_ns=total[1], ratio=total[1] / total[0] if total[0] else None, phases=tuple(_phases(before, after)),
        kernels=tuple(sorted(kernels, key=lambda row: -abs(row.delta_ns))), notes=tuple(notes),
    )  # fmt: skip


def _sum_names(summary: TraceSummary) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for kernel in summary.cpu.top if summary.cpu else summary.time.top:
        name = stable_name(kernel.name)
        count, ns = sums.get(name, (0, 0))
        sums[name] = (count + kernel.count, ns + kernel.ns)
    return sums


def _phases(before: TraceSummary, after: TraceSummary) -> list[Row]:
    rows = []
    for name in dict.fromkeys([*before.phases, *after.phases]):
        a, b = before.phases.get(name), after.phases.get(name)
        scales = [1.0 / p.steps if p and p.steps else 1.0 for p in (a, b)]
        counted = [(p.kernels, p.kernel_ns) if p else (0, 0) for p in (a, b)]
        rows.append(_row(name, counted[0], counted[1], scales))
    return rows


def _row(name: str, before: tuple[int, int], after: tuple[int, int], scales: list[float]) -> Row:
    a, b = before[1] * scales[0], after[1] * scales[1]
    change: Change = "same"
    if not before[0]:
        change = "new"
    elif not after[0]:
        change = "gone"
    elif a and abs(b / a - 1) > SAME:
        change = "slower" if b > a else "faster"
    return Row(
        name=name, before_count=before[0], after_count=after[0], before_ns=a, after_ns=b, change=change
    )  # fmt: skip
