"""ControlGroup: memory, pids and CPU accounting of one cage, in a v1 or v2 hierarchy where one is writable."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


class ControlGroup:
    """One group of a cage. `procs` are the files a process writes its pid into to join."""

    def __init__(self, kind: str, folders: dict[str, Path]) -> None:
        self.kind = kind
        self._folders = folders
        self.procs = [str(f / "cgroup.procs") for f in dict.fromkeys(folders.values())]

    def cpu_seconds(self) -> float | None:
        """Return CPU time used by the group, or None where nothing counts it."""
        with contextlib.suppress(FileNotFoundError):
            if "cpuacct" in self._folders:
                return int((self._folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
            if "unified" in self._folders:
                stat = (self._folders["unified"] / "cpu.stat").read_text().split()
                return int(stat[stat.index("usage_usec") + 1]) / 1e6
        return None

    def pids(self) -> set[int]:
        """Return the pids in the group now."""
        found: set[int] = set()
        for procs in self.procs:
            with contextlib.suppress(FileNotFoundError):
                found |= {int(line) for line in Path(procs).read_text().split()}
        return found

    def kill(self) -> None:
        """Kill every member until none is left."""
        for _ in range(200):
            members = self.pids()
            if not members:
                return
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def remove(self) -> None:
        for folder in dict.fromkeys(self._folders.values()):
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:  # the last member is still being reaped
                    time.sleep(0.01)


def create_group(memory_bytes: int, processes: int) -> ControlGroup | None:
    """Return a new group under our own, or None where no hierarchy is writable (rlimits hold alone then)."""
    ours = _our_groups()
    name = f"kernelwright-{os.getpid()}-{secrets.token_hex(4)}"
    return _create_v1(ours, name, memory_bytes, processes) or _create_v2(ours, name, memory_bytes, processes)


def _our_groups() -> dict[str, str]:
    """Return controller → path of our own group; the unified hierarchy is called ''."""
    groups = {}
    with contextlib.suppress(FileNotFoundError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _create_v1(ours: dict[str, str], name: str, memory_bytes: int, processes: int) -> ControlGroup | None:
    wanted = {
        "memory": ("memory.limit_in_bytes", str(memory_bytes)),
        "pids": ("pids.max", str(processes)),
        "cpuacct": None,
    }
    folders: dict[str, Path] = {}
    for controller, setting in wanted.items():
        if controller not in ours:
            continue
        folder = MOUNT / controller / ours[controller].lstrip("/") / name
        try:
            folder.mkdir()
            if setting:
                (folder / setting[0]).write_text(setting[1])
        except OSError:  # not mounted, or not ours to write: this controller is left out
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        folders[controller] = folder
    return ControlGroup(f"cgroup v1 ({', '.join(folders)})", folders) if folders else None


def _create_v2(ours: dict[str, str], name: str, memory_bytes: int, processes: int) -> ControlGroup | None:
    if "" not in ours or not (MOUNT / "cgroup.controllers").exists():
        return None
    folder = MOUNT / ours[""].lstrip("/") / name
    try:
        folder.mkdir()
        (folder / "memory.max").write_text(str(memory_bytes))
        (folder / "pids.max").write_text(str(processes))
    except OSError:  # no delegation, or the controllers are not enabled for children of our group
        with contextlib.suppress(OSError):
            folder.rmdir()
        return None
    return ControlGroup("cgroup v2", {"unified": folder})
