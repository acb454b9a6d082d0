"""How far device work is from what the device allows: the least time of each op call, shared among its kernels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelwright.profiles.cost import Cost
from kernelwright.profiles.costs import least_cost
from kernelwright.profiles.devices import Device, find_device
from kernelwright.profiles.events import Events, Indices
from kernelwright.profiles.families import classify
from kernelwright.profiles.grouping import group_rows
from kernelwright.profiles.lines import Lines
from kernelwright.profiles.origin import Origin
from kernelwright.profiles.phases import parse_step

Floats = npt.NDArray[np.float64]
BOUNDS = ("", "memory", "compute", "link", "overhead")
"""What sets the least time; '' without a model."""
MEMORY, COMPUTE, LINK, OVERHEAD = range(1, 5)
LAUNCH_NS = 1_000.0
"""Order of magnitude of a kernel that does nothing: below it the launch, not the work, sets the time."""
_INTEGERS = {"int64", "int32", "int16", "uint8", "bool"}
_MOVED = {
    "allreduce": lambda given, made, n: 2.0 * (n - 1) / n * given,
    "all_reduce": lambda given, made, n: 2.0 * (n - 1) / n * given,
    "allgather": lambda given, made, n: (n - 1) / n * made,
    "_allgather_base": lambda given, made, n: (n - 1) / n * made,
    "reduce_scatter": lambda given, made, n: (n - 1) / n * given,
    "_reduce_scatter_base": lambda given, made, n: (n - 1) / n * given,
    "all_to_all": lambda given, made, n: (n - 1) / n * given,
    "all_to_allv": lambda given, made, n: (n - 1) / n * given,
    "broadcast": lambda given, made, n: given,
}
"""Bytes that must leave one of `n` ranks (Thakur et al. 2005); `given` and `made` are bytes of its input and output."""
_SIZES = {
    "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "double": 8, "int": 4, "int32": 4, "long": 8,
    "int64": 8, "char": 1, "byte": 1, "int8": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Floors:
    """One entry per row of device work asked for; NaN where there is no model."""

    ns: Floats
    """Least time: of the op's call, in proportion to the kernels' own times."""
    flops: Floats
    bytes: Floats
    bound: Indices
    """Index into BOUNDS."""
    device: Device | None


def tell_gpu(events: Events, asked: Device | None = None) -> Device | None:
    """Return `asked`, else the device whose name the file's header gives; None if the table has none."""
    if asked is not None:
        return asked
    listed = events.header.get("deviceProperties")
    names = [str(d.get("name", "")) for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    return next((device for name in names if (device := find_device(name))), None)


def find_floors(events: Events, origin: Origin, lines: Lines, device: Device | None) -> Floors:
    """Return the least time that the ops behind `origin.work` allow on `device`."""
    n = len(lines)
    floors = Floors(np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int32), device)
    if device is None or not n:
        return floors
    dur = events.dur[origin.work].astype(np.float64)
    names, name = np.unique(events.name[origin.work], return_inverse=True)
    moves = np.array([classify(events.pool.names[i]).operation == "collective" for i in names.tolist()], np.bool_)
    called = np.flatnonzero((lines.call >= 0) & (lines.inputs > 0) & ~moves[name])
    _, first, member = np.unique(lines.call[called], return_index=True, return_inverse=True)
    total = np.bincount(member, weights=dur[called])
    share = np.divide(dur[called], total[member], out=np.zeros(len(called)), where=total[member] > 0)
    leads = called[first]
    """The first kernel of each call: it tells the call's op, shapes and step."""
    tf32 = np.array(["tf32" in name.lower() for name in events.pool.names], np.int64)[events.name[origin.work[leads]]]
    step = np.where(origin.step[leads] >= 0, events.name[origin.step[leads]], -1) if len(events) else leads
    kinds, kind = group_rows(lines.op[leads], lines.inputs[leads], step, tf32)
    costs = [_cost(events, lines, device, *row) for row in kinds.tolist()]
    each = kind[member]
    known = np.array([cost is not None for cost in costs], np.bool_)[each] if costs else np.zeros(0, np.bool_)
    at, parts, each = called[known], share[known], each[known]
    if len(at):
        ns, flops, moved = (np.array([cost[i] if cost else 0.0 for cost in costs]) for i in range(3))
        floors.ns[at], floors.flops[at], floors.bytes[at] = ns[each] * parts, flops[each] * parts, moved[each] * parts
        floors.bound[at] = np.array([cost[3] if cost else 0 for cost in costs])[each]
    _add_collectives(events, origin, device, floors)
    small = floors.ns < np.minimum(LAUNCH_NS, dur)
    if events.is_kernel.any():  # a call of a CPU costs less than that
        floors.ns[small], floors.bound[small] = np.minimum(LAUNCH_NS, dur)[small], OVERHEAD
    return floors


def _cost(
    events: Events, lines: Lines, device: Device, op: int, inputs: int, step: int, tf32: int
) -> tuple[float, float, float, int] | None:
    """Return (least ns, operations, bytes, bound) of a call; None without a model."""
    named = parse_step(events.pool.names[step]) if step >= 0 else None
    work = least_cost(lines.texts[op], lines.texts[inputs], named)
    if work is None:
        return None
    ns, bound = _least_ns(work, device, bool(tf32))
    return ns, work.flops, work.bytes, bound


def _least_ns(work: Cost, device: Device, tf32: bool) -> tuple[float, int]:
    number = "fp32" if work.number in _INTEGERS else work.number
    _, peak = device.peak("tf32" if tf32 and number == "fp32" else number)
    compute, memory = work.flops / peak * 1e9, work.bytes / device.memory_bytes_per_s * 1e9
    return (compute, COMPUTE) if compute > memory else (memory, MEMORY)


def _add_collectives(events: Events, origin: Origin, device: Device, floors: Floors) -> None:
    if device.link_bytes_per_s is None:
        return
    which = events.collective[origin.work]
    for number in np.unique(which[which >= 0]).tolist():
        moved = bytes_moved(json.loads(events.pool.collectives[number]))
        if moved is not None:
            at = np.flatnonzero(which == number)
            floors.ns[at], floors.flops[at] = moved / device.link_bytes_per_s * 1e9, 0.0
            floors.bytes[at], floors.bound[at] = moved, LINK


def bytes_moved(collective: dict[str, Any]) -> float | None:
    """Return the bytes that must leave one rank in `collective`; None where its name, type or group are unknown."""
    name = str(collective.get("name") or "").lower()
    rule, size = _MOVED.get(name), _SIZES.get(str(collective.get("dtype") or "").lower())
    ranks = collective.get("size") or 0
    given, made = collective.get("in") or 0, collective.get("out") or 0
    if rule is None or size is None or ranks < 2:
        return None
    return float(rule(given * size, made * size, ranks))
