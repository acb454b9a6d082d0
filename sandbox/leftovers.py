"""Leftovers: what a supervisor that was killed could not take away. The next one that opens a cage does.

Whatever a cage leaves on the host has its owner in its name (or label): process id, start time and pid namespace. It
is removed once that owner is certainly gone; what belongs to another pid namespace is left alone, for nobody here can
tell whether its owner lives.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

PREFIX = "kernelwright-"
STAGE = "kernelwright-stage-"
LABEL = "kernelwright.owner"


def owner_tag(pid: int | None = None) -> str:
    """Return the owner in names: `<pid>-<start time in ticks>-<pid namespace>` of process `pid` (default: us)."""
    number = pid or os.getpid()
    return f"{number}-{_start_time(number)}-{_pid_namespace()}"


def is_gone(tag: str) -> bool:
    """Return whether the owner of `tag` has certainly ended. A tag that cannot be read has no owner to be sure of."""
    parts = tag.split("-")
    if (
        len(parts) < 3
        or not all(part.isascii() and part.isdigit() for part in parts[:3])
        or parts[2] != _pid_namespace()
    ):
        return False
    try:
        return _start_time(int(parts[0])) != parts[1]
    except (FileNotFoundError, ProcessLookupError):
        return True


def make_stage() -> str:
    """Return a new empty folder, named for its owner, in a place that every user can walk to."""
    return tempfile.mkdtemp(prefix=f"{STAGE}{owner_tag()}-", dir=_stage_parent())


def _stage_parent() -> Path:
    places = [Path(place).resolve() for place in (tempfile.gettempdir(), "/tmp", "/var/tmp")]
    walkable = (p for p in places if all(q.is_dir() and q.stat().st_mode & 0o001 for q in (p, *p.parents)))
    return next(walkable, places[0])


@functools.cache
def sweep_once() -> None:
    """Sweep the first time a process opens a cage."""
    sweep_leftovers()


def sweep_leftovers() -> list[str]:
    """Remove control groups and staging folders of supervisors that are gone; return the paths removed.

    What still runs in such a group is ended first. Containers are swept by the docker cage, which has a daemon to ask.
    """
    from kernelwright.sandbox.cgroup import own_folders

    removed: list[str] = []
    for parent in own_folders():
        for folder in parent.glob(f"{PREFIX}*"):
            if is_gone(folder.name.removeprefix(PREFIX)) and _remove_group(folder):
                removed.append(str(folder))
    for folder in _stage_parent().glob(f"{STAGE}*"):
        if is_gone(folder.name.removeprefix(STAGE)) and _remove_stage(folder):
            removed.append(str(folder))
    return removed


def _remove_stage(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        if os.geteuid() in (0, folder.lstat().st_uid):
            shutil.rmtree(folder, ignore_errors=True)  # it does not follow a link
    return not folder.exists()


def _remove_group(folder: Path) -> bool:
    for _ in range(200):
        with contextlib.suppress(OSError):
            members = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
            for pid in members:
                if pid > 0:  # 0: in a pid namespace that is not below ours
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
        try:
            folder.rmdir()
            return True
        except FileNotFoundError:
            return True
        except PermissionError:
            return False
        except OSError:
            time.sleep(0.01)
    return False


def _start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid").partition("[")[2].rstrip("]")
