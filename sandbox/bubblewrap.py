"""Bubblewrap: the default cage on Linux. Own namespaces, own host user (as root), seccomp filter, limits; level L3.

As root the cage first gives up root for a user id nobody else has (a user namespace alone would leave host UID 0)
and shows the host's paths through a private staging mount, so that an interpreter or checkout below a root-only folder
still works. A file that is itself unreadable to others is not worked around: it is named, with the remedy.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import RUNNER_PACKAGES, SOURCE_ROOT, Bind, CagedProcess, Limits, cage_environment
from kernelwright.sandbox.launch import launch_with_plan, rlimits
from kernelwright.sandbox.leftovers import make_stage
from kernelwright.sandbox.remedy import explain_refusal
from kernelwright.sandbox.seccomp import compile_filter
from kernelwright.sandbox.view import (
    OPTIONAL,
    check_readable,
    free_uid,
    parents_first,
    software_binds,
    system_folders,
    system_links,
)

_SHARED_MEMORY_BYTES = 64 << 20


class Bubblewrap:
    name = "bubblewrap"

    def __init__(self) -> None:
        found = shutil.which("bwrap")
        if found is None:
            raise EnvironmentLacks("bubblewrap (bwrap) is not installed", "install it: apt-get install bubblewrap")
        self._bwrap = found

    def check(self) -> None:
        """Start and end one empty cage. Raises EnvironmentLacks with what bwrap said when that fails."""
        with self.spawn(["/bin/true"], stderr=subprocess.PIPE) as caged:
            code = caged.wait(30)
            said = caged.stderr.read().decode(errors="replace").strip() if caged.stderr else ""
        if code != 0:
            cause, remedy = explain_refusal()
            raise EnvironmentLacks(f"bubblewrap cannot build a cage here: {said} ({cause})", remedy)

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
        uid = free_uid() if os.geteuid() == 0 else None
        ro = [*software_binds(packages), *ro_binds]
        stage = make_stage() if uid is not None else None
        staged: list[list[str]] = []

        def source_of(bind: Bind) -> str:
            if stage is None:
                return str(bind.source)
            staged.append([str(bind.source), f"m{len(staged)}"])
            return f"{stage}/{staged[-1][1]}"

        command = [self._bwrap, *_isolation(), *_system_mounts(limits)]
        for bind in parents_first(ro):
            check_readable(bind.source, uid)
            command += ["--ro-bind", source_of(bind), str(bind.destination)]
        for bind in rw_binds:
            if uid is not None:
                os.chown(bind.source, uid, uid)
            command += ["--bind", source_of(bind), str(bind.destination)]
        # the mounts that hold the mount points are memory, too: closed, so that the scratch is all that can be filled
        command += ["--remount-ro", "/dev", "--remount-ro", "/"]
        whole_env = {**cage_environment(env), "PYTHONPATH": str(SOURCE_ROOT)}
        for key, value in whole_env.items():
            command += ["--setenv", key, value]
        plan = {
            "env": whole_env,
            "uid": uid,
            "stage": stage,
            "binds": staged,
            "rlimits": rlimits(limits, uid is not None),
        }
        if uid is None:
            argv = [*_process_limit(limits), *argv]
        return _launch([*command, "--", *argv], plan, stage, fds, limits, stdout, stderr)


def _launch(
    command: list[str],
    plan: Mapping[str, object],
    stage: str | None,
    fds: Sequence[int],
    limits: Limits,
    stdout: int | IO[bytes] | None,
    stderr: int | IO[bytes] | None,
) -> CagedProcess:
    filter_fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(filter_fd, compile_filter())
    os.lseek(filter_fd, 0, os.SEEK_SET)
    command[1:1] = ["--seccomp", str(filter_fd)]
    try:
        return launch_with_plan(
            {**plan, "argv": command},
            fds=(*fds, filter_fd),
            limits=limits,
            stdout=stdout,
            stderr=stderr,
            cleanup=(lambda: _remove_stage(stage)) if stage else None,
        )
    finally:
        os.close(filter_fd)


def _process_limit(limits: Limits) -> list[str]:
    """Return what bounds the processes of a rootless cage: inside its user namespace the count starts anew.

    Since Linux 5.14 RLIMIT_NPROC counts by user and user namespace; before, it would count all of the user's.
    """
    prlimit = shutil.which("prlimit")
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    return [prlimit, f"--nproc={limits.processes + 4}", "--"] if prlimit and release >= (5, 14) else []


def _isolation() -> list[str]:
    return [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
        "--die-with-parent", "--new-session", "--clearenv", "--hostname", "cage", "--cap-drop", "ALL",
    ]  # fmt: skip


def _system_mounts(limits: Limits) -> list[str]:
    mounts: list[str] = []
    for folder, target in system_links().items():
        mounts += ["--symlink", target, folder]
    for folder in system_folders():
        mounts += ["--ro-bind", folder, folder]
    for path in (*OPTIONAL, "/sys/devices/system/cpu"):
        mounts += ["--ro-bind-try", path, path]
    mounts += ["--proc", "/proc", "--dev", "/dev", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]
    return [*mounts, "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp"]


def _remove_stage(stage: str) -> None:
    # the staging mount lived in the cage's own namespace; what is left is an empty folder
    with contextlib.suppress(OSError):
        os.rmdir(stage)
