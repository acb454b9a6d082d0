"""Cage: what holds untrusted code. One protocol; `bubblewrap`, `docker` and `process` implement it.

A cage starts a command with an allow-listed view of the machine: read-only system directories, the Python environment,
the named kernelwright packages (at `SOURCE_ROOT`, on PYTHONPATH), the binds asked for, a private scratch at /tmp, and
the open descriptors asked for. Nothing else of the caller crosses.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from kernelwright.profiles.errors import WrongUse
from kernelwright.sandbox.cgroup import ControlGroup

SOURCE_ROOT = Path("/opt/kernelwright")
RUNNER_PACKAGES = ("profiles", "kernels", "sandbox")


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one cage; all are hard."""

    memory_bytes: int = 8 << 30
    processes: int = 64
    """Processes and threads together."""
    cpu_seconds: int | None = 900
    """None for a long-lived server."""
    file_bytes: int = 1 << 30
    open_files: int = 512
    scratch_bytes: int = 256 << 20
    sanitized: bool = False
    """The command is built with a sanitizer: it reserves terabytes that it never uses, so private memory is bounded by
    the control group alone."""
    fixed_addresses: bool = False
    """Its address space is not randomised: equal commands see equal addresses. Inside, nobody could ask for that."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A path of the host shown at `destination` inside."""

    source: Path
    destination: Path


class Cage(Protocol):
    name: str

    def spawn(
        self,
        argv: Sequence[str],
        *,
        fds: Sequence[int] = (),
        ro_binds: Sequence[Bind] = (),
        rw_binds: Sequence[Bind] = (),
        env: Mapping[str, str] | None = None,
        limits: Limits = Limits(),
        packages: Sequence[str] = RUNNER_PACKAGES,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> CagedProcess:
        """Start `argv` inside and return at once.

        `fds` keep their numbers. `rw_binds` must be directories: when the cage drops to another user they are handed
        to that user (chown), so that the command may create files (a unix socket, say) that the caller can reach.
        `packages` are the kernelwright folders the command may import. `env` replaces the environment altogether, on
        top of a small fixed one. Raises EnvironmentLacks when this machine cannot build the cage.
        """
        ...


class Started(Protocol):
    """What a cage has started: a subprocess, or a container's first process."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class CagedProcess:
    """A running cage. `pid` is the outermost process; `kill` ends everything inside.

    `layers` is how many processes of the cage's own stand above the command: bubblewrap's monitor and its namespace's
    init are 2, the reaper of a container or of a process cage is 1. `cleanup` runs once, after the end.
    """

    def __init__(
        self,
        popen: Started,
        group: ControlGroup | None = None,
        cleanup: Callable[[], None] | None = None,
        layers: int = 2,
        pidfd: int | None = None,
    ) -> None:
        self._popen = popen
        self._group = group
        self._cleanup = cleanup
        self._layers = layers
        self._stopped: tuple[int, ...] = ()
        self.pid = popen.pid
        self.pidfd = os.pidfd_open(popen.pid) if pidfd is None else pidfd
        self.limits_by = group.kind if group else "rlimits"

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._popen.stdout

    @property
    def stderr(self) -> IO[bytes] | None:
        return self._popen.stderr

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def inside(self) -> list[int]:
        """Return the host pids of the command and everything it started, the command first."""
        # by place and not by name, which anything can take
        return descendants(self.pid)[self._layers - 1 :]

    def inner_pid(self, timeout_s: float = 5.0) -> int | None:
        """Return the host pid of the command itself (not of the cage around it); None if it has ended already."""
        deadline = time.monotonic() + timeout_s
        while self.alive and time.monotonic() < deadline:
            if (inside := self.inside()) and not _is_cage_process(inside[0]):
                return inside[0]
            time.sleep(0.005)
        return None

    def cpu_seconds(self) -> float:
        """Return CPU time used so far by everything inside, read outside: the cgroup's counter or /proc."""
        used = self._group.cpu_seconds() if self._group else None
        return used if used is not None else sum(cpu_seconds_of(p) for p in self.inside())

    def num_processes(self) -> int:
        """Return how many live processes the command has become, itself included."""
        return self.count_running(self.inside())

    def count_running(self, pids: Sequence[int]) -> int:
        """Return how many of `pids` are alive."""
        return sum(_is_running(pid) for pid in pids)

    def stop(self) -> None:
        """Stop everything inside. Looked for again until nothing new turns up: a fork may have been under way."""
        stopped: set[int] = set()
        while new := [pid for pid in self.inside() if pid not in stopped]:
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            stopped.update(new)
        self._stopped = tuple(stopped)

    def resume(self, but: Container[int] = ()) -> None:
        """Let what `stop` stopped go on, all `but` some; without looking for it again: it is done under the clock."""
        for pid in self._stopped:
            if pid not in but:
                _signal(pid, signal.SIGCONT)
        self._stopped = tuple(pid for pid in self._stopped if pid in but)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end and return the exit status (diagnostic only). Raises subprocess.TimeoutExpired."""
        return self._popen.wait(timeout_s)

    def kill(self) -> None:
        """End everything inside and wait until it is gone. Safe to call twice."""
        if self.alive and self._layers > 1:
            # the first descendant is the namespace's init: with it everything inside dies at once, and bwrap reaps it
            _kill_all(descendants(self.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(2)
        elif self.alive:
            self._end_by_reaper()
        _kill_all([*descendants(self.pid), self.pid] if self.alive else [])
        if self._group and self.pidfd >= 0:
            self._group.kill()
        self._popen.wait(10)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
            if self._group:
                self._group.remove()
            if self._cleanup:
                self._cleanup()

    def _end_by_reaper(self) -> None:
        """Let the reaper end all it has adopted; what it has not ended in time is killed after it."""
        self.stop()  # a standing process starts no other
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(6)

    def __enter__(self) -> CagedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


CAGES = ("bubblewrap", "docker", "process")


def open_cage(name: str) -> Cage:
    """Return the cage called `name`, after what a killed supervisor has left behind was removed.

    Raises WrongUse for an unknown name, EnvironmentLacks where this machine has no such cage.
    """
    from kernelwright.sandbox.bubblewrap import Bubblewrap
    from kernelwright.sandbox.docker_cage import DockerCage
    from kernelwright.sandbox.leftovers import sweep_once
    from kernelwright.sandbox.process import Process

    cages: dict[str, Callable[[], Cage]] = dict(zip(CAGES, (Bubblewrap, DockerCage, Process), strict=True))
    if name not in cages:
        raise WrongUse(f"unknown cage {name!r}", f"choose one of: {', '.join(cages)}")
    sweep_once()
    return cages[name]()


def python_argv(module: str, *args: str) -> list[str]:
    """Return the command line that runs `module` with this interpreter, safe path on."""
    return [sys.executable, "-P", "-m", module, *args]


def cage_environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return the whole environment of a caged command: a small fixed one, then `env`."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "USER": "kernelwright",
        "LOGNAME": "kernelwright",
        "LANG": "C.UTF-8",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(env or {}),
    }


def descendants(pid: int) -> list[int]:
    """Return the pids below `pid`, parents before children, as the host numbers them."""
    found: list[int] = []
    todo = [pid]
    while todo:
        current = todo.pop(0)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{current}/task"):
                children = Path(f"/proc/{current}/task/{task}/children").read_text().split()
                found += [int(c) for c in children]
                todo += [int(c) for c in children]
    return found


def cpu_seconds_of(pid: int) -> float:
    """Return user plus system time of one process, in seconds; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tasks_of(pid: int) -> list[int]:
    """Return the threads of one process by their numbers; none when it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    return []


def waited_seconds_of(pid: int) -> float:
    """Return how long the threads of one process were ready and had no processor so far, in seconds, summed.

    0 when it is gone, or where the kernel does not count it.

    Source: the second field of /proc/PID/task/TID/schedstat (Linux, Documentation/scheduler/sched-stats).
    """
    waited = 0
    for task in tasks_of(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            waited += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[1])
    return waited / 1e9


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_cage_process(pid: int) -> bool:
    try:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap":
            return True
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return any(word.endswith((b"/drop.py", b"/reaper.py")) for word in words[:5])
