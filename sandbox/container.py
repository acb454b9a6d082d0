"""Container: the Docker side of a docker cage: the daemon, the image without content, the settings, the first process.

Source: the Docker Engine API, version 1.41 (ContainerCreate, HostConfig).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import select
import subprocess
import tarfile
import time
from collections.abc import Sequence
from typing import IO, Any

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import Bind, Limits
from kernelwright.sandbox.leftovers import LABEL, is_gone, owner_tag
from kernelwright.sandbox.seccomp import docker_profile
from kernelwright.sandbox.view import system_links

Docker = Any
"""docker.DockerClient; the package is untyped."""
REPOSITORY = "kernelwright-cage"
API_TIMEOUT_S = 60
LOST = 137
"""The exit code of a container whose own the daemon does not tell: that of a killed one."""
NO_DAEMON = (
    "start one: `systemctl start docker`, or as root `dockerd &`; install it with apt-get install -y docker.io. The "
    "bubblewrap cage needs no daemon"
)
_MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware", "/sys/fs",
    "/sys/kernel", "/sys/block", "/sys/power", "/sys/hypervisor", "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_SHARED_MEMORY_BYTES = 64 << 20


def connect() -> Docker:
    """Return a client of a daemon on this machine. Raises EnvironmentLacks: no package, no daemon, a remote one."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        raise EnvironmentLacks("the Python package `docker` is not installed", "pip install docker") from None
    try:
        client: Docker = docker.DockerClient.from_env(timeout=API_TIMEOUT_S)  # type: ignore[no-untyped-call, attr-defined]
        client.ping()
    except (DockerException, OSError) as error:
        if "PermissionError" in str(error):
            raise EnvironmentLacks(
                "the Docker daemon is not yours to use", "sudo usermod -aG docker $USER, then log in again"
            ) from None
        raise EnvironmentLacks("no Docker daemon answers", NO_DAEMON) from None
    try:
        _check_daemon(client)
    except EnvironmentLacks:
        client.close()
        raise
    return client


def _check_daemon(client: Docker) -> None:
    if not client.api.base_url.startswith(("http+docker://", "http+unix://")):
        raise EnvironmentLacks(
            f"the Docker daemon is remote ({client.api.base_url}): its processes cannot be measured from here",
            "unset DOCKER_HOST, or use the bubblewrap cage",
        )
    info = client.info()
    if any("name=rootless" in option for option in info.get("SecurityOptions") or ()):
        raise EnvironmentLacks(
            "the Docker daemon is rootless: what it limits and which users it maps is not ours to choose",
            "use the bubblewrap cage, which is rootless without a daemon",
        )
    if not any("name=seccomp" in option for option in info.get("SecurityOptions") or ()):
        raise EnvironmentLacks(
            "the Docker daemon has no seccomp support", "use a kernel and a runc with seccomp, or the bubblewrap cage"
        )


def find_or_make_image(client: Docker) -> str:
    """Return the tag of an image that has nothing but the system's symbolic links; it is imported when missing."""
    from docker.errors import ImageNotFound

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder, target in sorted(system_links().items()):
            member = tarfile.TarInfo(folder.lstrip("/"))
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
            archive.addfile(member)
    tag = "empty-" + hashlib.sha256(content.getvalue()).hexdigest()[:12]
    try:
        client.images.get(f"{REPOSITORY}:{tag}")
    except ImageNotFound:
        client.api.import_image_from_data(content.getvalue(), repository=REPOSITORY, tag=tag)
    return f"{REPOSITORY}:{tag}"


def settings(
    argv: Sequence[str], *, image: str, user: int, binds: Sequence[Bind], writable: Sequence[Bind], limits: Limits,
    gpus: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the body of ContainerCreate for a cage."""
    mounts = [_mount(bind, read_only=True) for bind in binds] + [_mount(bind, read_only=False) for bind in writable]
    host: dict[str, Any] = {
        "NetworkMode": "none", "IpcMode": "private", "PidMode": "", "CgroupnsMode": "private", "UsernsMode": "host",
        "ReadonlyRootfs": True, "CapDrop": ["ALL"], "Privileged": False, "AutoRemove": False, "Init": False,
        "SecurityOpt": ["no-new-privileges", f"seccomp={docker_profile()}"],
        "PidsLimit": limits.processes + 4, "Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes,
        "ShmSize": _SHARED_MEMORY_BYTES,
        "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.scratch_bytes}"},
        "Mounts": mounts, "LogConfig": {"Type": "none"}, "RestartPolicy": {"Name": "no"},
        "MaskedPaths": list(_MASKED), "ReadonlyPaths": list(_READ_ONLY),
    }  # fmt: skip
    if gpus:
        host["DeviceRequests"] = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    return {
        "Image": image, "Entrypoint": [], "Cmd": list(argv), "Env": [], "User": f"{user}:{user}", "WorkingDir": "/",
        "Hostname": "cage", "NetworkDisabled": True, "Tty": False, "OpenStdin": False,
        "Labels": {LABEL: owner_tag()}, "HostConfig": host,
    }  # fmt: skip


def _mount(bind: Bind, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "bind", "Source": str(bind.source), "Target": str(bind.destination), "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }  # fmt: skip


class Container:
    """A started container as `CagedProcess` wants it. `pid` is its first process, as this machine numbers it."""

    def __init__(
        self, client: Docker, identity: str, pid: int, stdout: IO[bytes] | None, stderr: IO[bytes] | None
    ) -> None:
        self.pid = pid
        self.stdout, self.stderr = stdout, stderr
        self._client, self._identity = client, identity
        self._pidfd = os.pidfd_open(pid)
        self._code: int | None = None

    def dup_pidfd(self) -> int:
        """Return another descriptor of the first process; the caller closes it."""
        return os.dup(self._pidfd)

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(None if timeout is None else max(0, round(timeout * 1000))):
                raise subprocess.TimeoutExpired(self._identity, timeout or 0)
            self._code = self._ask_code()
            os.close(self._pidfd)
        return self._code

    def _ask_code(self) -> int:
        from docker.errors import APIError

        deadline = time.monotonic() + 10
        with contextlib.suppress(APIError, OSError):  # without the daemon nobody knows it any more
            while time.monotonic() < deadline:  # the daemon hears of the end a little later than we do
                state = self._client.api.inspect_container(self._identity)["State"]
                if not state["Running"]:
                    return int(state["ExitCode"])
                time.sleep(0.01)
        return LOST


def remove(client: Docker, identity: str) -> None:
    """Remove a container, whatever state it is in."""
    from docker.errors import APIError, NotFound

    for _ in range(20):
        try:
            client.api.remove_container(identity, force=True, v=True)
            return
        except NotFound:
            return
        except APIError:  # it is being removed, or still dying
            time.sleep(0.1)
        except OSError:  # the daemon has ended; the next docker cage removes what it left
            return


def sweep(client: Docker) -> list[str]:
    """Remove containers whose supervisor is gone; return their ids."""
    gone = []
    for found in client.api.containers(all=True, filters={"label": LABEL}):
        if is_gone(found["Labels"].get(LABEL, "")):
            remove(client, found["Id"])
            gone.append(str(found["Id"]))
    return gone
