"""Isolation measured from outside: what /proc says about a process, compared with ourselves.

The levels are defined in docs/architecture.md, "Isolation levels". L4 is never returned: it means another kernel, and
whatever has an entry in our /proc runs on ours.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from kernelwright.sandbox.cgroup import group_of

Level = Literal["L0", "L1", "L2", "L3", "L4"]
_NAMESPACES = ("pid", "mnt", "ipc", "net")
_CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def measure(pid: int) -> tuple[Level, dict[str, str]]:
    """Return the isolation level of process `pid` and the facts it rests on.

    Everything is read from this side of the wall; nothing is asked of the process. Raises ProcessLookupError when it
    has ended.
    """
    try:
        facts = _read_facts(pid)
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} has ended") from error
    if pid == os.getpid():
        return "L0", facts
    lacking = find_lacking(facts)
    level: Level = "L1" if "L2" in lacking else "L2" if "L3" in lacking else "L3"
    facts["lacking"] = "; ".join(reason for reasons in lacking.values() for reason in reasons)
    return level, facts


def find_lacking(facts: dict[str, str]) -> dict[str, list[str]]:
    """Return level → what the facts lack for it; no entry for a level means that it is reached."""
    shared = [name for name in _NAMESPACES if facts[f"ns_{name}"] != "own"]
    second = [f"shares our {name} namespace" for name in shared]
    if facts["powers_from"] == "ours":
        second.append("is in our user namespace and could gain capabilities there")
    checks = {
        "no seccomp filter": facts["seccomp"] == "2",
        "may gain privileges by exec": facts["no_new_privs"] == "1",
        "has capabilities": int(facts["cap_eff"], 16) == 0,
        "memory is not limited": facts["limits"] != "",
        "runs as root on the host": facts["host_uid"] != "0",
        "our processes are visible or reachable for it": facts["reach"] in ("another user", "sees no process of ours"),
    }
    third = [reason for reason, fine in checks.items() if not fine]
    return {level: reasons for level, reasons in (("L2", second), ("L3", third)) if reasons}


def _read_facts(pid: int) -> dict[str, str]:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )  # fmt: skip
    uids = set(status["Uid"].split())
    facts = {
        "host_uid": status["Uid"].split()[0],
        "host_gid": status["Gid"].split()[0],
        "groups": status["Groups"].strip(),
        "cap_eff": status["CapEff"].strip(),
        "cap_bnd": status["CapBnd"].strip(),
        "seccomp": status["Seccomp"].strip(),
        "no_new_privs": status["NoNewPrivs"].strip(),
        "uid_map": " ".join(Path(f"/proc/{pid}/uid_map").read_text().split()),
        "limits": ", ".join(_finite_limits(pid)),
        "cgroup": _cgroup(pid),
        "proc": _proc_is(pid),
    }
    for name in ("user", *_NAMESPACES, "uts", "cgroup"):
        same = os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}")
        facts[f"ns_{name}"] = "shared" if same else "own"
    facts["powers_from"] = _powers_from(facts, status)
    facts["reach"] = _reach(facts, uids)
    return facts


def _powers_from(facts: dict[str, str], status: dict[str, str]) -> str:
    """Return where capabilities of the process could count.

    'its namespace': a user namespace of its own, so none counts outside. 'nowhere': it shares ours, but every
    capability set is empty, the bounding set too, and exec gains nothing (no_new_privs): it has none and never gets
    any. 'ours': otherwise.
    """
    if facts["ns_user"] == "own":
        return "its namespace"
    empty = all(int(status[name], 16) == 0 for name in _CAPABILITY_SETS)
    return "nowhere" if empty and facts["no_new_privs"] == "1" else "ours"


def _reach(facts: dict[str, str], uids: set[str]) -> str:
    """Return what keeps the process from ours: another user's id, or that it cannot name any process of ours."""
    if not uids & {"0", str(os.geteuid())}:
        return "another user"
    hidden = facts["ns_pid"] == "own" and facts["proc"] == "own" and facts["ns_ipc"] == "own"
    return "sees no process of ours" if hidden and uids == {str(os.geteuid())} else "ours"


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
    group = group_of(pid)
    return f"{group.kind}; limited: {', '.join(group.limited) or 'nothing'}" if group else ""


def _proc_is(pid: int) -> str:
    """Return 'own' when every procfs mounted in its view shows its pid namespace and no other, else 'shared'.

    A procfs lists a process under its number there, and counts its numbers from its own namespace down: the one of the
    process's namespace has it under its innermost number, as its only one.
    """
    namespace = os.readlink(f"/proc/{pid}/ns/pid")
    if namespace == os.readlink("/proc/self/ns/pid"):
        return "shared"
    with contextlib.suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        innermost = _numbers(Path(f"/proc/{pid}"))[-1]
        for point in _proc_mounts(pid):
            entry = Path(f"/proc/{pid}/root{point}/{innermost}")
            if os.readlink(entry / "ns/pid") != namespace or _numbers(entry) != [innermost]:
                return "shared"
        return "own"
    return "unknown"


def _numbers(entry: Path) -> list[str]:
    """Return the process numbers that a procfs entry gives, outermost namespace first."""
    lines = (entry / "status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith("NSpid:"))


def _proc_mounts(pid: int) -> list[str]:
    """Return where whole procfs instances are mounted for `pid` (single files of one over others are not listed)."""
    found = []
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] == "proc" and left.split()[3] == "/":
            found.append(left.split()[4])
    return found
