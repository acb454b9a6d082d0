"""Launch: start a command through `drop.py`, in a session and a control group of its own, under rlimits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from kernelwright.sandbox.cage import CagedProcess, Limits
from kernelwright.sandbox.cgroup import create_group


def launch_with_plan(
    plan: Mapping[str, object],
    *,
    fds: Sequence[int],
    limits: Limits,
    stdout: int | IO[bytes] | None,
    stderr: int | IO[bytes] | None,
    cleanup: Callable[[], None] | None = None,
    layers: int = 2,
) -> CagedProcess:
    """Start `drop.py` on `plan`. Returns the process it becomes; `layers` as in CagedProcess."""
    group = create_group(limits.memory_bytes, limits.processes + 4)
    script = Path(__file__).with_name("drop.py")
    plan = {
        **plan,
        "cgroup_procs": group.procs if group else [],
        "fixed_addresses": limits.fixed_addresses,
    }
    popen = subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), json.dumps(plan)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(fds),
        start_new_session=True,
        env={},
    )
    return CagedProcess(popen, group, cleanup, layers)


def rlimits(limits: Limits, own_uid: bool) -> dict[str, int]:
    """Return rlimits by name. RLIMIT_DATA bounds private memory (torch reserves address space it never uses);
    RLIMIT_NPROC counts by user, so it is set only for a user id of the cage's own.
    """
    found = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_MEMLOCK": 0,
    }
    if not limits.sanitized:
        found["RLIMIT_DATA"] = limits.memory_bytes
    if limits.cpu_seconds is not None:
        found["RLIMIT_CPU"] = limits.cpu_seconds
    if own_uid:
        found["RLIMIT_NPROC"] = limits.processes + 4
    return found
