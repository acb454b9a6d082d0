"""Rank the kernels of any trace: what each could save of the device's time, and through what one could change it."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from pydantic import BaseModel

from kernelwright.profiles.attribution import Work
from kernelwright.profiles.families import VENDOR, Family, Operation, classify
from kernelwright.profiles.headroom import BOUNDS, Floors
from kernelwright.profiles.rank import MIN_CEILING, MIN_HEADROOM

Reach = Literal["custom op", "source line", "op", "vendor library", "nothing", "collective"]
WORTH: dict[str, float] = {
    "custom op": 1.0, "source line": 1.0, "op": 0.9, "nothing": 0.7, "vendor library": 0.5, "collective": 0.0,
}  # fmt: skip
"""How much of what a kernel could save counts in the order. An op that vLLM dispatches by name (a CustomOp, one of its
IR) or a line of the engine can be replaced as it is (our own engine's slots are ranked by `rank.py`); behind a vendor's
library stand years of tuning; of a collective only waiting can be saved, and by another plan of parallelism."""
_CUSTOM_OP = re.compile(
    r": (?:forward_(?:cuda|hip|native|cpu|xpu|oot)|_forward_impl)$|layers/(?:layernorm|activation)\.py|vllm/ir/ops/"
)


class KernelTarget(BaseModel, frozen=True, extra="forbid"):
    """All launches of one kernel."""

    name: str
    operation: Operation
    library: str
    count: int
    ns: int
    share: float
    """Fraction of the time of all kernels."""
    phase: str
    """Where most of its time is."""
    source: str
    module: str
    op: str
    """Where most of its time comes from; '' unknown."""
    least_ns: float | None
    """Time at the roofline of those launches that have a model; None if none has."""
    modelled_ns: int
    """Time of the launches that have one."""
    flops: float | None
    """Least operations of those launches, and least bytes; None without a model."""
    bytes: float | None
    bound: str
    """What limits it at the roofline: `memory`, `compute`, `link`, `overhead`; '' without a model."""
    headroom: float | None
    """Time now ÷ time at the roofline, of those that have a model; None: no model."""
    ceiling: float
    """How many times faster all kernels together would be if this one ran at its roofline (or took no time, without a
    model), by Amdahl."""
    reach: Reach
    excluded: str | None
    """Why it is not worked on, in words; None if it is."""


def rank_kernel_targets(work: Work, floors: Floors) -> tuple[KernelTarget, ...]:
    """Return every kernel (op of a CPU) by name as a target, the best first, those excluded behind; none is left out.

    The order is by what could be saved of the whole time, share × (1 - 1 ÷ headroom), times how well it can be reached.
    Without a model the whole share counts as saved, so that an unknown kernel is never hidden.
    """
    dur = work.ns
    total = int(dur.sum())
    names, member = np.unique(work.names, return_inverse=True)
    order = np.argsort(member, kind="stable")
    bounds = np.searchsorted(member[order], np.arange(len(names) + 1))
    targets = [
        _measure(work, work.events.pool.names[name], order[bounds[i] : bounds[i + 1]], total, floors)
        for i, name in enumerate(names.tolist())
    ]
    return tuple(sorted(targets, key=_key))


def _key(target: KernelTarget) -> tuple[bool, float, str]:
    return (target.excluded is not None, -WORTH[target.reach] * (1.0 - 1.0 / target.ceiling), target.name)


def _measure(work: Work, name: str, entries: np.ndarray, total: int, floors: Floors) -> KernelTarget:
    time, lines = work.ns[entries], work.lines
    ns = int(time.sum())
    source, module, op = (
        _most(column[entries], time, lines.texts) for column in (lines.source, lines.module, lines.op)
    )
    family = classify(name, op)
    modelled = ~np.isnan(floors.ns[entries])
    modelled_ns = int(time[modelled].sum())
    least = float(floors.ns[entries][modelled].sum()) if modelled.any() else None
    headroom = modelled_ns / least if least else None
    saved_ns = (ns - modelled_ns) + (max(modelled_ns - least, 0.0) if least is not None else 0.0)
    ceiling = total / max(total - saved_ns, 1.0) if total else 1.0
    reach = _reach(family, source, op)
    phase = work.phases[_largest(work.phase[entries], time)]
    bound = BOUNDS[_largest(floors.bound[entries], np.nan_to_num(floors.ns[entries]))]
    return KernelTarget(
        name=name, operation=family.operation, library=family.library, count=len(entries), ns=ns,
        share=ns / total if total else 0.0, phase=phase, source=source, module=module, op=op,
        least_ns=least, modelled_ns=modelled_ns, flops=_sum(floors.flops[entries]), bytes=_sum(floors.bytes[entries]),
        bound=bound,
        headroom=headroom, ceiling=ceiling, reach=reach, excluded=_exclude(reach, headroom, modelled_ns == ns, ceiling),
    )  # fmt: skip


def _sum(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else None


def _most(column: np.ndarray, time: np.ndarray, texts: tuple[str, ...]) -> str:
    """Return the text under which most of `time` falls, a known one if there is any."""
    known = column > 0
    return texts[_largest(column[known], time[known])] if known.any() else ""


def _largest(numbers: np.ndarray, time: np.ndarray) -> int:
    """Return the number on which most of `time` falls, the most frequent where there is none; of equals the least."""
    return int(np.bincount(numbers, weights=time if time.any() else None).argmax())


def _reach(family: Family, source: str, op: str) -> Reach:
    if family.operation == "collective":
        return "collective"
    if family.library in VENDOR:
        return "vendor library"
    if _CUSTOM_OP.search(source):
        return "custom op"
    return "source line" if source else "op" if op else "nothing"


def _exclude(reach: Reach, headroom: float | None, whole: bool, ceiling: float) -> str | None:
    if reach == "collective":
        return "a collective: what it can save is waiting for other ranks, which no kernel changes"
    if whole and headroom is not None and headroom < MIN_HEADROOM:
        return f"as fast as the device allows: {headroom:.2f}x its time at the roofline, under {MIN_HEADROOM:.2f}x"
    if ceiling < MIN_CEILING:
        return f"too small: without it all kernels would be {ceiling:.4f}x as fast, under {MIN_CEILING:.3f}x"
    return None
