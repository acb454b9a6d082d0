"""Time at the roofline: the least time one call can take on this machine, and what bounds it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kernelwright.profiles.profile import Ceilings

Bound = Literal["memory", "compute", "overhead", "unknown"]

CACHES_TO_FILL = 4
"""Data this many times the size of a cache streams from the next level; less may be served from the cache in part."""
CALL_NS = 1_000.0
"""Order of magnitude of entering a native kernel through its ABI. Below it the call, not the work, sets the time."""


class Roofline(NamedTuple):
    ns: float
    bound: Bound


def time_at_roofline(
    num_bytes: int,
    flops: int,
    ceilings: Ceilings,
    *,
    level: Literal["dram", "cache"] = "dram",
    call_ns: float = CALL_NS,
) -> Roofline:
    """Return max(bytes ÷ bandwidth, FLOPs ÷ peak, `call_ns`) in ns and the term that won.

    `level` is where the data lives: a decode step walks every weight once, so they come from where the whole footprint
    lies (`dram`: measured with a buffer of that very size, which on a large cache may be the cache).
    `call_ns=0` gives the pure roofline of Williams, Waterman and Patterson (2009).
    """
    bandwidth = ceilings.dram_bytes_per_s if level == "dram" else ceilings.cache_bytes_per_s
    memory = num_bytes / bandwidth * 1e9
    compute = flops / ceilings.fp32_flops_per_s * 1e9
    work = Roofline(memory, "memory") if memory >= compute else Roofline(compute, "compute")
    return work if work.ns >= call_ns else Roofline(call_ns, "overhead")


def attainable_flops(intensity: float, ceilings: Ceilings, level: Literal["dram", "cache"] = "dram") -> float:
    """Return the FLOP/s the roofline allows at `intensity` FLOPs per byte."""
    bandwidth = ceilings.dram_bytes_per_s if level == "dram" else ceilings.cache_bytes_per_s
    return min(ceilings.fp32_flops_per_s, intensity * bandwidth)


def bandwidth_at(footprint_bytes: int, ceilings: Ceilings, last_level_bytes: int) -> tuple[str, float]:
    """Return the level that data of this size is served from when walked again and again, and its bytes/s.

    Levels overlap at their edges (a ring twice the size of a cache is served from it in part), so that a footprint
    counts for the slower level only from CACHES_TO_FILL times the size of the faster one: the floor is never too high.
    """
    best = max(ceilings.l1_bytes_per_s, ceilings.l2_bytes_per_s, ceilings.cache_bytes_per_s, ceilings.dram_bytes_per_s)
    if not ceilings.l1_bytes or footprint_bytes <= CACHES_TO_FILL * ceilings.l1_bytes:
        return "l1", best
    if ceilings.l2_bytes and footprint_bytes <= CACHES_TO_FILL * ceilings.l2_bytes:
        return "l2", max(ceilings.l2_bytes_per_s, ceilings.cache_bytes_per_s, ceilings.dram_bytes_per_s)
    if footprint_bytes <= CACHES_TO_FILL * last_level_bytes:
        return "cache", max(ceilings.cache_bytes_per_s, ceilings.dram_bytes_per_s)
    return "dram", ceilings.dram_bytes_per_s
