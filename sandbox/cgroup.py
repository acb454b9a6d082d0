"""ControlGroup: memory, pids and CPU accounting of one cage, in the v1 and v2 hierarchies that are writable.

Where both exist, v1 has the controllers, and the group in v2 is there to end all its members at once (cgroup.kill).
Source: the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst; mounts as /proc/self/mountinfo names them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.sandbox.leftovers import PREFIX, owner_tag

_V1 = ("memory", "pids", "cpuacct")
_V2 = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy: its v1 controllers (none for v2) and the folder of a process's group in it."""

    controllers: frozenset[str]
    folder: Path
    mount: Path

    @property
    def unified(self) -> bool:
        return not self.controllers


class ControlGroup:
    """One group of a cage. `folders`: v1 controller → folder, and 'unified' for v2; `limited`: what it limits.

    `procs` are the files a process writes its pid into to join.
    """

    def __init__(self, folders: dict[str, Path], limited: tuple[str, ...]) -> None:
        self.folders = folders
        self.limited = limited
        self.kind = _describe(folders, limited)
        self.procs = [str(f / "cgroup.procs") for f in dict.fromkeys(folders.values())]

    def cpu_seconds(self) -> float | None:
        """Return CPU time used by the group, or None where nothing counts it."""
        with contextlib.suppress(FileNotFoundError):
            if "cpuacct" in self.folders:
                return int((self.folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
            if "unified" in self.folders:
                stat = (self.folders["unified"] / "cpu.stat").read_text().split()
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
        """Kill every member until none is left; at once, forks in progress included, where v2 is there."""
        for _ in range(400):
            if "unified" in self.folders:
                with contextlib.suppress(OSError):  # before Linux 5.14 there is no such file
                    (self.folders["unified"] / "cgroup.kill").write_text("1")
            members = self.pids()
            if not members:
                return
            for pid in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def remove(self) -> None:
        for folder in dict.fromkeys(self.folders.values()):
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:  # the last member is still being reaped
                    time.sleep(0.01)


def create_group(memory_bytes: int, processes: int) -> ControlGroup | None:
    """Return a new group near our own, or None where no hierarchy is writable (rlimits hold alone then)."""
    name = f"{PREFIX}{owner_tag()}-{secrets.token_hex(4)}"
    folders: dict[str, Path] = {}
    limited: list[str] = []
    unified = None
    for hierarchy in read_hierarchies():
        if hierarchy.unified:
            unified = hierarchy
            continue
        for controller in _V1:
            if controller in hierarchy.controllers:
                folder = hierarchy.folder / name
                if _make_v1(folder, controller, memory_bytes, processes):
                    folders[controller] = folder
                    limited += [controller] if controller != "cpuacct" else []
    if unified is not None and (made := _make_v2(unified, name, memory_bytes, processes)):
        folders["unified"], found = made
        limited += found
    return ControlGroup(folders, tuple(limited)) if folders else None


def group_of(pid: int) -> ControlGroup | None:
    """Return the group that process `pid` is in, where it is not ours; to be read, not removed.

    `limited` is what is limited there now, read from the group's own files. Raises FileNotFoundError when it has ended.
    """
    ours = {h.mount: h.folder for h in read_hierarchies()}
    folders: dict[str, Path] = {}
    limited = []
    for hierarchy in read_hierarchies(pid):
        if hierarchy.folder == ours.get(hierarchy.mount):
            continue
        for name in ("unified",) if hierarchy.unified else (c for c in _V1 if c in hierarchy.controllers):
            folders[name] = hierarchy.folder
            limited += [c for c in _V2 if _is_limited(hierarchy.folder, name, c)]
    return ControlGroup(folders, tuple(sorted(set(limited)))) if folders else None


def own_folders() -> list[Path]:
    """Return every folder in which `create_group` may have made groups."""
    found: list[Path] = []
    for hierarchy in read_hierarchies():
        if hierarchy.unified:
            found += _upwards(hierarchy)
        elif hierarchy.controllers & set(_V1):
            found.append(hierarchy.folder)
    return found


def read_hierarchies(pid: int | None = None) -> list[Hierarchy]:
    """Return the mounted hierarchies and the group of `pid` (default: us) in each; none where none is mounted.

    Raises FileNotFoundError when `pid` has ended.
    """
    file = Path(f"/proc/{pid or 'self'}/cgroup")
    if pid is None and not file.exists():  # a kernel without control groups
        return []
    groups: dict[str, str] = {}
    for line in file.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups[controllers] = path
    found: list[Hierarchy] = []
    for mount, root, kind, options in _cgroup_mounts():
        for controllers, path in groups.items():
            names = frozenset(controllers.split(",")) - {""}
            same = kind == "cgroup2" if not names else kind == "cgroup" and names <= options
            if same and not any(h.controllers == names for h in found):
                inside = os.path.relpath(path, root) if path.startswith(root) else path.lstrip("/")
                found.append(Hierarchy(names, Path(os.path.normpath(mount / inside)), mount))
    return found


def _cgroup_mounts() -> Iterator[tuple[Path, str, str, frozenset[str]]]:
    """Yield (mount point, root of the mount, 'cgroup' or 'cgroup2', super options) as proc(5) describes mountinfo."""
    with contextlib.suppress(FileNotFoundError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            kind, _, options = right.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                yield Path(left.split()[4]), left.split()[3], kind, frozenset(options.split(","))


def _make_v1(folder: Path, controller: str, memory_bytes: int, processes: int) -> bool:
    try:
        folder.mkdir(exist_ok=True)  # two controllers may share a hierarchy
        if controller == "memory":
            (folder / "memory.limit_in_bytes").write_text(str(memory_bytes))
            with contextlib.suppress(OSError):  # no swap accounting: then there is usually no swap
                (folder / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))
        elif controller == "pids":
            (folder / "pids.max").write_text(str(processes))
    except OSError:  # not ours to write: this controller is left out
        _remove_quietly(folder)
        return False
    return True


def _make_v2(hierarchy: Hierarchy, name: str, memory_bytes: int, processes: int) -> tuple[Path, list[str]] | None:
    """Make a group below the nearest ancestor that hands memory and pids on to its children; else anywhere.

    A group that has processes cannot hand controllers on, so a child of our own group is limited only where our
    group is empty but for groups; a session of systemd has such an ancestor within the reach of its user, or of root.
    """
    fallback: Path | None = None
    for parent in _upwards(hierarchy):
        folder = parent / name
        if not os.access(parent / "cgroup.procs", os.W_OK):  # moving a process needs its common ancestor's leave
            continue
        try:
            folder.mkdir()
        except OSError:
            continue
        limited = []
        for file, value in (("memory.max", memory_bytes), ("pids.max", processes)):
            with contextlib.suppress(OSError):
                _write_existing(folder / file, str(value))
                limited.append(file.partition(".")[0])
        if len(limited) == len(_V2):
            with contextlib.suppress(OSError):
                _write_existing(folder / "memory.swap.max", "0")
            if fallback:
                _remove_quietly(fallback)
            return folder, limited
        if fallback is None and not limited:
            fallback = folder
        else:
            _remove_quietly(folder)
    return (fallback, []) if fallback else None


def _upwards(hierarchy: Hierarchy) -> list[Path]:
    above = [p for p in hierarchy.folder.parents if p.is_relative_to(hierarchy.mount)]
    return [hierarchy.folder, *above] if hierarchy.folder.is_relative_to(hierarchy.mount) else []


def _write_existing(path: Path, text: str) -> None:
    with open(path, "r+") as file:  # a control file is never created by writing
        file.write(text)


def _is_limited(folder: Path, name: str, controller: str) -> bool:
    files = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}[controller]
    if name not in (controller, "unified"):
        return False
    with contextlib.suppress(OSError):
        value = (folder / files[name == "unified"]).read_text().strip()
        return value != "max" and int(value) < 1 << 60
    return False


def _remove_quietly(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _describe(folders: dict[str, Path], limited: tuple[str, ...]) -> str:
    v1 = [name for name in folders if name != "unified"]
    if v1:
        return f"cgroup v1 ({', '.join(v1)})" + (" and v2 (kill)" if "unified" in folders else "")
    return f"cgroup v2 ({', '.join(limited) if limited else 'no controllers: rlimits limit'})"
