"""Sums of kernels and hardware counters as one record: what they cannot tell is null, not guessed."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.profiles.device_time import DeviceTime, KernelTime
from kernelwright.profiles.families import classify
from kernelwright.profiles.health import Health
from kernelwright.profiles.ncu import KernelCounters
from kernelwright.profiles.nsys_csv import KernelSums


def describe_sums(sums: Sequence[KernelSums], counters: Sequence[KernelCounters]) -> dict[str, object]:
    """Return the flat record of files that hold no times; kernels of several files are added up by name."""
    totals: dict[str, list[int]] = {}
    for one in sums:
        for kernel in one.kernels:
            entry = totals.setdefault(kernel.name, [0, 0])
            entry[0] += kernel.count
            entry[1] += kernel.ns
    top = [
        KernelTime(name=name, count=count, ns=ns)
        for name, (count, ns) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]
    total = sum(kernel.ns for kernel in top)
    record: dict[str, object] = dict.fromkeys(DeviceTime.model_fields)
    record |= {
        "device": "gpu", "events": None, "kernels": sum(k.count for k in top), "kernel_ns": total,
        "distinct_names": len(top), "top": [k.model_dump() for k in top], "phases": {}, "unattributed_ns": total,
        "per_device": {}, "targets": [_target(kernel, total, counters) for kernel in top],
        "counters": [c.model_dump(mode="json") for c in counters],
        "health": (sums[0].health if sums else Health()).model_dump(mode="json"),
    }  # fmt: skip
    return record


def _target(kernel: KernelTime, total: int, counters: Sequence[KernelCounters]) -> dict[str, object]:
    """Return a kernel with its headroom where counters of its name are there."""
    family = classify(kernel.name)
    measured = next((c for c in counters if c.name == kernel.name), None)
    return {
        "name": kernel.name, "operation": family.operation, "library": family.library, "count": kernel.count,
        "ns": kernel.ns, "share": kernel.ns / total if total else 0.0,
        "headroom": measured.headroom if measured else None, "bound": measured.bound if measured else "",
    }  # fmt: skip
