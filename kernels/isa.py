"""Which instruction set level this host has. Levels of the x86-64 psABI; `armv8.2` stands for armv8.2-a with fp16."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import cast

from kernelwright.kernels.candidate import Isa

LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "armv8.2": frozenset({"asimd", "asimdhp", "fphp"}),
}
"""Level → the flags of /proc/cpuinfo it asks for beyond the level below; best level first."""
MARCH = {
    "x86-64-v4": "x86-64-v4",
    "x86-64-v3": "x86-64-v3",
    "x86-64-v2": "x86-64-v2",
    "armv8.2": "armv8.2-a+fp16",
}
"""Level → the compiler's -march."""


def read_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the flags of the first processor in `cpuinfo`; empty where there is none."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except FileNotFoundError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def levels_of(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the levels `flags` reach, the best first."""
    if LEVELS["armv8.2"] <= flags:
        return ("armv8.2",)
    reached: list[str] = []
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4"):
        if not LEVELS[level] <= flags:
            break
        reached.insert(0, level)
    return tuple(reached)


def detect_isa() -> Isa:
    """Return the best level of this host: `x86-64-v4`, `-v3`, `-v2`, `armv8.2`, or `any` for none of them."""
    levels = levels_of(read_flags())
    return cast(Isa, levels[0]) if levels else "any"


def supports(isa: str) -> bool:
    """Return whether this host runs code of level `isa`; `any` always does."""
    return isa == "any" or isa in levels_of(read_flags())


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as it gives itself, else the machine type."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except FileNotFoundError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
