"""Isolation measured from outside: what /proc says about a process, compared with ourselves."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

Level = Literal["L0", "L1", "L2", "L3", "L4"]
_NAMESPACES = ("user", "pid", "mnt", "ipc", "net")


def measure(pid: int) -> tuple[Level, dict[str, str]]:
    """Return the isolation level of process `pid` and the facts it rests on (docs/architecture.md, "Isolation levels").

    Everything is read from this side of the wall; nothing is asked of the process. Raises ProcessLookupError when it
    has ended.
    """
    try:
        facts = _read_facts(pid)
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} has ended") from error
    if pid == os.getpid():
        return "L0", facts
    own = [n for n in _NAMESPACES if facts[f"ns_{n}"] == "own"]
    if len(own) < len(_NAMESPACES):
        return "L1", facts
    filtered = facts["seccomp"] == "2" and facts["no_new_privs"] == "1"
    limited = facts["limits"] != ""
    unreachable = facts["host_uid"] not in ("0", str(os.geteuid())) or (
        os.geteuid() != 0 and facts["proc"] == "own" and facts["host_uid"] == str(os.geteuid())
    )
    powerless = int(facts["cap_eff"], 16) == 0
    return ("L3" if filtered and limited and unreachable and powerless else "L2"), facts


def _read_facts(pid: int) -> dict[str, str]:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )  # fmt: skip
    facts = {
        "host_uid": status["Uid"].split()[0],
        "host_gid": status["Gid"].split()[0],
        "groups": status["Groups"].strip(),
        "cap_eff": status["CapEff"].strip(),
        "seccomp": status["Seccomp"].strip(),
        "no_new_privs": status["NoNewPrivs"].strip(),
        "uid_map": " ".join(Path(f"/proc/{pid}/uid_map").read_text().split()),
        "limits": ", ".join(_finite_limits(pid)),
        "cgroup": _cgroup(pid),
        "proc": _proc_is(pid),
    }
    for name in (*_NAMESPACES, "uts", "cgroup"):
        same = os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}")
        facts[f"ns_{name}"] = "shared" if same else "own"
    return facts


def _finite_limits(pid: int) -> list[str]:
    """Return the limits that bound memory, processes and CPU time, as text; empty unless memory is bounded."""
    wanted = {"Max data size": "data", "Max cpu time": "cpu", "Max processes": "processes", "Max file size": "file"}
    found = []
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        name, hard = line[:26].strip(), line[47:68].strip()
        if name in wanted and hard != "unlimited":
            found.append(f"{wanted[name]}={hard}")
    return found if any(f.startswith("data=") for f in found) else []


def _cgroup(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    ours = [line for line in lines if "kernelwright-" in line]
    return ", ".join(line.split(":")[1] or "unified" for line in ours)


def _proc_is(pid: int) -> str:
    """Return whether the procfs it sees is another instance than ours, so that it cannot list our processes."""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        return "shared" if os.stat(f"/proc/{pid}/root/proc").st_dev == os.stat("/proc").st_dev else "own"
    return "unknown"
