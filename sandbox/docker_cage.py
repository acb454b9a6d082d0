"""Docker: a cage made by the Docker daemon of this machine, for hosts where bubblewrap may not make namespaces.

A container has its own pid, mount, IPC, network and UTS namespaces, a host user of its own, no capabilities, no way to
gain any, our seccomp filter, a read-only root and hard limits; without a user namespace that is L3 all the same
(docs/architecture.md, "Isolation levels"). The image has no content: what the cage shows of the host is bind-mounted
read-only, as in the bubblewrap cage.

A container cannot inherit descriptors. Its first process, `reaper.py`, connects to a unix socket in a private folder
and is sent them; the kernel tells us that it is the container's first process which has connected.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import RUNNER_PACKAGES, SOURCE_ROOT, Bind, CagedProcess, Limits, cage_environment
from kernelwright.sandbox.cgroup import ControlGroup, group_of
from kernelwright.sandbox.container import Container, connect, find_or_make_image, remove, settings, sweep
from kernelwright.sandbox.launch import rlimits
from kernelwright.sandbox.leftovers import make_stage
from kernelwright.sandbox.seccomp import compile_filter
from kernelwright.sandbox.view import (
    OPTIONAL,
    check_readable,
    free_uid,
    parents_first,
    software_binds,
    system_folders,
)

START_S = 60.0
_MEETING = Path("/run/kernelwright")
_REAPER = Path("/opt/reaper.py")


class DockerCage:
    """`gpus`: hand in the NVIDIA GPUs, too (the daemon needs NVIDIA's container toolkit)."""

    name = "docker"

    def __init__(self, *, gpus: bool = False) -> None:
        self._client = connect()
        self._gpus = gpus
        self._image = find_or_make_image(self._client)
        sweep(self._client)

    def check(self) -> None:
        """Start and end one empty cage. Raises EnvironmentLacks with what the daemon said when that fails."""
        with self.spawn(["/bin/true"]) as caged:
            code = caged.wait(30)
        if code != 0:
            raise EnvironmentLacks(f"a container ended with {code} instead of 0", "see the daemon's log")

    def spawn(
        self,
        argv: Sequence[str],
        *,
        fds: Sequence[int] = (),
        ro_binds: Sequence[Bind] = (),
        rw_binds: Sequence[Bind] = (),
        env: Mapping[str, str] | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        packages: Sequence[str] = RUNNER_PACKAGES,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> CagedProcess:
        """See `Cage.spawn`."""
        own_uid = free_uid() if os.geteuid() == 0 else None
        uid = os.geteuid() if own_uid is None else own_uid
        for bind in rw_binds:
            if own_uid is not None:
                os.chown(bind.source, uid, uid)
        plan = {
            "argv": list(argv),
            "env": {**cage_environment(env), "PYTHONPATH": str(SOURCE_ROOT)},
            "rlimits": rlimits(limits, own_uid is not None),
            "fds": [0, 1, 2, *fds],
            "filter": compile_filter().hex(),
            "fixed_addresses": limits.fixed_addresses,
        }
        with contextlib.ExitStack() as stack, _Streams(stdout, stderr) as streams, _Meeting(uid) as meeting:
            body = settings(
                [sys.executable, "-I", "-S", str(_REAPER), "receive", str(_MEETING / "s")], image=self._image, user=uid,
                binds=_shown(packages, ro_binds, own_uid, meeting.folder), writable=rw_binds, limits=limits,
                gpus=self._gpus,
            )  # fmt: skip
            identity = self._start(body, stack)
            pid = self._find_pid(identity)
            container = Container(self._client, identity, pid, streams.stdout, streams.stderr)
            group = group_of(pid)  # before it runs: a short command would be gone
            control = meeting.hand_over(plan, [streams.null, streams.out, streams.err, *fds], pid)
            kept = stack.pop_all()
            kept.callback(control.close)
        return _ContainedProcess(container, group, kept)

    def _start(self, body: Mapping[str, object], stack: contextlib.ExitStack) -> str:
        from docker.errors import APIError

        try:
            identity = str(self._client.api.create_container_from_config(body)["Id"])
            stack.callback(remove, self._client, identity)
            self._client.api.start(identity)
        except APIError as error:
            raise EnvironmentLacks(
                f"the Docker daemon cannot make a cage: {error.explanation or error}",
                "the daemon must be on this very file system, not inside another container; see its log",
            ) from None
        return identity

    def _find_pid(self, identity: str) -> int:
        state = self._client.api.inspect_container(identity)["State"]
        pid = int(state["Pid"])
        if not state["Running"] or pid <= 0:
            raise EnvironmentLacks(
                f"the cage's first process ended with {state['ExitCode']} {state['Error']}".rstrip(),
                "make the interpreter and the checkout readable: chmod -R o+rX; see the daemon's log",
            )
        if not Path(f"/proc/{pid}").exists():
            raise EnvironmentLacks(
                "the Docker daemon's processes are not visible from here, so that nothing can be measured",
                "run kernelwright on the daemon's host, or in a container with --pid=host",
            )
        return pid


class _ContainedProcess(CagedProcess):
    def __init__(self, container: Container, group: ControlGroup | None, kept: contextlib.ExitStack) -> None:
        super().__init__(container, _Borrowed.of(group), kept.close, layers=1, pidfd=container.dup_pidfd())
        self.limits_by = f"docker's {group.kind}" if group and group.limited else "rlimits"


class _Borrowed(ControlGroup):
    """A group that the daemon has made and will remove; it is read here."""

    @staticmethod
    def of(group: ControlGroup | None) -> ControlGroup | None:
        return _Borrowed(group.folders, group.limited) if group else None

    def remove(self) -> None:
        """Leave it to the daemon."""


class _Meeting:
    """A unix socket in a folder that only user `uid` may enter; the container gets it as `_MEETING`, read-only."""

    def __init__(self, uid: int) -> None:
        self.folder = Path(make_stage())
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.folder / "s"))
        self._server.listen(1)
        if os.geteuid() == 0:
            os.chown(self.folder, uid, uid)
            os.chown(self.folder / "s", uid, uid)

    def hand_over(self, plan: Mapping[str, object], fds: Sequence[int], pid: int) -> socket.socket:
        """Send plan and descriptors to process `pid`, and return the connection once the command has started."""
        control = self._accept(pid)
        body = json.dumps(plan).encode()
        control.settimeout(START_S)
        try:
            socket.send_fds(control, [len(body).to_bytes(8, "big")], list(fds))
            control.sendall(body)
            started = control.recv(1)
        except OSError:
            started = b""
        if started != b"s":
            control.close()
            raise EnvironmentLacks("the cage ended before its command began", "check memory and pids on this machine")
        return control

    def _accept(self, pid: int) -> socket.socket:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            self._server.settimeout(0.5)
            try:
                control, _ = self._server.accept()
            except TimeoutError:
                if not Path(f"/proc/{pid}").exists():
                    break
                continue
            peer, *_ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if peer == pid:
                return control
            control.close()
        raise EnvironmentLacks(
            "the container's first process did not connect, or runs on another kernel",
            "make the interpreter and the checkout readable: chmod -R o+rX; use the runtime runc",
        )

    def __enter__(self) -> _Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class _Streams:
    """The command's three standard descriptors, from what a caller of `Popen` may say."""

    wanted_out: int | IO[bytes] | None
    wanted_err: int | IO[bytes] | None

    def __enter__(self) -> _Streams:
        self._ours: list[int] = []
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.null = self._keep(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
        self.out, self.stdout = self._open(self.wanted_out, 1)
        self.err, self.stderr = (
            (self.out, None) if self.wanted_err == subprocess.STDOUT else self._open(self.wanted_err, 2)
        )
        return self

    def _open(self, wanted: int | IO[bytes] | None, default: int) -> tuple[int, IO[bytes] | None]:
        if wanted is None:
            return default, None
        if wanted == subprocess.DEVNULL:
            return self.null, None
        if wanted == subprocess.PIPE:
            read, write = os.pipe2(os.O_CLOEXEC)
            return self._keep(write), open(read, "rb")
        return wanted if isinstance(wanted, int) else wanted.fileno(), None

    def _keep(self, fd: int) -> int:
        self._ours.append(fd)
        return fd

    def __exit__(self, *_: object) -> None:
        for fd in self._ours:
            os.close(fd)


def _shown(packages: Sequence[str], more: Sequence[Bind], uid: int | None, meeting: Path) -> list[Bind]:
    system = [Bind(Path(path), Path(path)) for path in _system_paths()]
    own = [Bind(Path(__file__).with_name("reaper.py"), _REAPER), Bind(meeting, _MEETING)]
    software = [*software_binds(packages), *more]
    for bind in software:
        check_readable(bind.source, uid)
    return [*system, *parents_first([Bind(b.source.resolve(), b.destination) for b in [*software, *own]])]


def _system_paths() -> Iterator[str]:
    yield from system_folders()
    yield from (path for path in OPTIONAL if os.path.exists(path))
