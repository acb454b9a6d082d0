"""Measure what this machine reaches with the engine's thread count: bandwidth of memory and cache, peak arithmetic."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from kernelwright.profiles.errors import EnvironmentLacks, WrongUse
from kernelwright.profiles.profile import Ceilings

COMPILE_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-pthread")
INSTALL_COMPILER = "install g++, e.g. `apt-get install -y g++`"
ROUNDS = 3
REPETITIONS = 9
_SYSCONF_CACHE = {1: 188, 2: 191, 3: 194}
"""Level → _SC_LEVELn_(D)CACHE_SIZE of glibc's <bits/confname.h>."""
SECONDS = 120.0
"""Limit for the measurement; it takes two or three seconds on an idle machine."""


def measure_ceilings(threads: int, working_set_bytes: int, *, compiler: str = "g++") -> Ceilings:
    """Return the measured Ceilings with `threads` threads, each pinned to a CPU of this process's affinity mask.

    Memory bandwidth is that of streaming reads of `working_set_bytes`, the weights a decode step walks; cache bandwidth
    that of a buffer an eighth of the last-level cache; that of the first and second level of buffers half their size;
    the peaks those of independent fp32 fused multiply-adds and of the dot products of bf16 and int8. Each is the best
    of 3 rounds, a round being the median of 9 repetitions of at least 5 ms.
    Raises WrongUse for more threads than CPUs, EnvironmentLacks when there is no working compiler.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(cpus):
        raise WrongUse(
            f"ceilings need one CPU per thread: {threads} threads, {len(cpus)} CPUs",
            f"name between 1 and {len(cpus)} threads",
        )
    if working_set_bytes <= 0:
        raise WrongUse(f"a working set of {working_set_bytes} bytes cannot be read", "give the size of the weights")
    with tempfile.TemporaryDirectory(prefix="kernelwright-ceilings-") as folder:
        program = _compile(compiler, Path(folder))
        rates = _run(program, cpus[:threads], working_set_bytes)
    return Ceilings(
        dram_bytes_per_s=rates["dram"],
        cache_bytes_per_s=rates["cache"],
        fp32_flops_per_s=rates["fp32"],
        bf16_flops_per_s=rates.get("bf16", 0.0),
        int8_ops_per_s=rates.get("int8", 0.0),
        threads=threads,
        working_set_bytes=working_set_bytes,
        l1_bytes_per_s=rates.get("l1", 0.0),
        l2_bytes_per_s=rates.get("l2", 0.0),
        l1_bytes=cache_bytes(1) * threads,
        l2_bytes=cache_bytes(2) * threads,
    )


def best_rate(work: float, rounds: list[list[float]]) -> float:
    """Return work per second of the best round, a round being as fast as its median repetition.

    A median hides one lucky or interrupted repetition; the best round hides a neighbour that was busy for a while.
    """
    return max(work / median(seconds) for seconds in rounds)


def _compile(compiler: str, folder: Path) -> Path:
    if shutil.which(compiler) is None:
        raise EnvironmentLacks(f"no compiler: {compiler} is not on the path", INSTALL_COMPILER)
    source, program = folder / "ceilings.cpp", folder / "ceilings"
    source.write_text(files("kernelwright.profiles").joinpath("ceilings.cpp").read_text())
    command = [compiler, *COMPILE_FLAGS, str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise EnvironmentLacks(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}", INSTALL_COMPILER)
    return program


def _run(program: Path, cpus: list[int], working_set_bytes: int) -> dict[str, float]:
    """Return bytes/s of `dram`, `cache`, `l2` and `l1` (those that are known) and FLOP/s of `fp32`, `bf16`, `int8`."""
    inner = [cache_bytes(level) * len(cpus) // 2 for level in (2, 1)]
    numbers = (working_set_bytes, _cache_buffer_bytes(), *inner, ROUNDS, REPETITIONS)
    command = [str(program), ",".join(map(str, cpus)), *map(str, numbers)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except PermissionError as error:
        raise EnvironmentLacks(f"cannot run {program}", "set TMPDIR to a folder not mounted noexec") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacks(f"the ceilings took over {SECONDS:.0f} s", "free the machine and try again") from error
    if done.returncode != 0:
        raise EnvironmentLacks(
            f"measuring the ceilings failed with status {done.returncode}: {done.stderr.strip() or 'no message'}",
            f"make sure CPUs {cpus} are this process's and {working_set_bytes} bytes are free",
        )
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: best_rate(row["work"], row["seconds"]) for row in rows}


def cache_bytes(level: int, pick: Callable[[list[int]], int] = max) -> int:
    """Return the size of one data cache of `level` (1, 2 or 3); kernel and C library may differ, `pick` chooses.

    0 if neither knows. Source: sysfs-devices-system-cpu, sysconf(3) by its numbers, which Python has no names for.
    """
    sizes = [_sysconf(_SYSCONF_CACHE[level])]
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, found = (folder / "type").read_text().strip(), (folder / "level").read_text().strip()
            if found == str(level) and kind in ("Data", "Unified"):
                sizes.append(int((folder / "size").read_text().strip().removesuffix("K")) * 1024)
        except (OSError, ValueError):
            continue
    return pick([size for size in sizes if size > 0] or [0])


def last_level_cache_bytes() -> int:
    """Return the size of this machine's last-level cache; 32 MiB where it does not say."""
    return cache_bytes(3) or cache_bytes(2) or 32 << 20


def _sysconf(number: int) -> int:
    try:
        return max(0, os.sysconf(number))
    except (OSError, ValueError):
        return 0


def _cache_buffer_bytes() -> int:
    """Return an eighth of the last-level cache (a virtual machine rarely owns all it is told of), 256 KiB at least."""
    return max((cache_bytes(3, min) or cache_bytes(2, min) or 8 << 20) // 8, 1 << 18)
