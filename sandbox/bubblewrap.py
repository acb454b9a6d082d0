"""Bubblewrap: the default cage on Linux. Own namespaces, own host user (as root), seccomp filter, limits; level L3.

As root the cage first gives up root for a user id nobody else has (a user namespace alone would leave host UID 0)
and shows the host's paths through a private staging mount, so that an interpreter or checkout below a root-only folder
still works. A file that is itself unreadable to others is not worked around: it is named, with the remedy.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import RUNNER_PACKAGES, SOURCE_ROOT, Bind, CagedProcess, Limits, cage_environment
from kernelwright.sandbox.cgroup import create_group
from kernelwright.sandbox.seccomp import compile_filter

_UIDS = range(60100, 64900)
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_OPTIONAL = ("/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu")


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
            raise EnvironmentLacks(
                f"bubblewrap cannot build a cage here: {said}",
                "allow user namespaces: sysctl -w user.max_user_namespaces=15000; on Ubuntu 24.04 also "
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; in a container run it with "
                "--security-opt seccomp=unconfined --security-opt systempaths=unconfined --cap-add SYS_ADMIN",
            )

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
        uid = _free_uid() if os.geteuid() == 0 else None
        ro = [*_python_binds(), *_package_binds(packages), *ro_binds]
        stage = tempfile.mkdtemp(prefix="kernelwright-stage-") if uid is not None else None
        staged: list[list[str]] = []

        def source_of(bind: Bind) -> str:
            if stage is None:
                return str(bind.source)
            staged.append([str(bind.source), f"m{len(staged)}"])
            return f"{stage}/{staged[-1][1]}"

        command = [self._bwrap, *_isolation(), *_system_mounts(limits)]
        for bind in sorted(ro, key=lambda b: len(b.destination.parts)):
            _check_readable(bind.source, uid)
            command += ["--ro-bind", source_of(bind), str(bind.destination)]
        for bind in rw_binds:
            if uid is not None:
                os.chown(bind.source, uid, uid)
            command += ["--bind", source_of(bind), str(bind.destination)]
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


def launch_with_plan(
    plan: Mapping[str, object],
    *,
    fds: Sequence[int],
    limits: Limits,
    stdout: int | IO[bytes] | None,
    stderr: int | IO[bytes] | None,
    cleanup: Callable[[], None] | None = None,
    nested: bool = True,
) -> CagedProcess:
    """Start `drop.py` on `plan` in its own session and cgroup. Returns the process it becomes."""
    group = create_group(limits.memory_bytes, limits.processes + 4)
    script = Path(__file__).with_name("drop.py")
    plan = {**plan, "cgroup_procs": group.procs if group else [], "fixed_addresses": limits.sanitized}
    popen = subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), json.dumps(plan)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(fds),
        start_new_session=True,
        env={},
    )
    return CagedProcess(popen, group, cleanup, nested)


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


def _isolation() -> list[str]:
    return [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
        "--die-with-parent", "--new-session", "--clearenv", "--hostname", "cage", "--cap-drop", "ALL",
    ]  # fmt: skip


def _system_mounts(limits: Limits) -> list[str]:
    mounts: list[str] = []
    for folder in _SYSTEM:
        if os.path.islink(folder):
            mounts += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            mounts += ["--ro-bind", folder, folder]
    for path in _OPTIONAL:
        mounts += ["--ro-bind-try", path, path]
    return [*mounts, "--proc", "/proc", "--dev", "/dev", "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp"]


def _python_binds() -> list[Bind]:
    roots = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))}
    roots |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    wanted = sorted(r for r in roots if not r.startswith("/usr/") and r != "/usr")
    kept = [r for r in wanted if not any(r != o and Path(r).is_relative_to(o) for o in wanted)]
    return [Bind(Path(r), Path(r)) for r in kept]


def _package_binds(packages: Sequence[str]) -> list[Bind]:
    home = Path(__file__).resolve().parent.parent
    return [Bind(home / p, SOURCE_ROOT / "kernelwright" / p) for p in packages]


def _check_readable(path: Path, uid: int | None) -> None:
    if not path.exists():
        raise EnvironmentLacks(f"{path} does not exist", "check the path given to the cage")
    need = 0o005 if path.is_dir() else 0o004
    if uid is not None and stat.S_IMODE(path.stat().st_mode) & need != need:
        raise EnvironmentLacks(
            f"{path} is not readable by other users, so a cage with a user of its own cannot use it",
            f"make it readable: chmod -R o+rX {path}",
        )


def _free_uid() -> int:
    """Return a user id that has no account and runs no process, so that nothing of it can be reached."""
    used = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(FileNotFoundError):
                used.add(os.stat(f"/proc/{entry}").st_uid)
    mapped = _mapped_uids()
    for _ in range(1000):
        uid = _UIDS.start + secrets.randbelow(len(_UIDS))
        if uid in used or not any(uid in r for r in mapped):
            continue
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise EnvironmentLacks(
        f"no free user id in {_UIDS.start}..{_UIDS.stop - 1} to run untrusted code under",
        "run as an ordinary user, or map that range into this container",
    )


def _mapped_uids() -> list[range]:
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return [range(int(inside), int(inside) + int(count)) for inside, _, count in (line.split() for line in lines)]


def _remove_stage(stage: str) -> None:
    # the staging mount lived in the cage's own namespace; what is left is an empty folder
    with contextlib.suppress(OSError):
        os.rmdir(stage)
