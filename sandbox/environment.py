"""Environment: what a verdict was taken with, as text, without anything that names a person or a place."""

from __future__ import annotations

import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernelwright.kernels.build import compiler_version
from kernelwright.kernels.isa import detect_isa
from kernelwright.profiles.digest import digest_bytes
from kernelwright.profiles.errors import EnvironmentLacks

PACKAGES = ("torch", "apache-tvm-ffi", "numpy", "kernelwright")
HARNESS = ("sandbox", "kernels")


@functools.cache
def describe_environment() -> dict[str, str]:
    """Return processor, cores, instruction set, kernel, libc, compiler and versions of this machine."""
    facts = {
        "cpu": _cpu_name(),
        "cores": str(len(os.sched_getaffinity(0))),
        "isa": detect_isa(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }
    try:
        facts["compiler"] = compiler_version()
    except EnvironmentLacks:
        facts["compiler"] = "none"
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "unknown"
    return facts


@functools.cache
def harness_digest() -> str:
    """Return the SHA-256 over the source of the judge and of what it loads candidates with."""
    home = Path(__file__).resolve().parent.parent
    names = sorted(
        path
        for folder in HARNESS
        for path in (home / folder).rglob("*")
        if path.suffix in (".py", ".cpp", ".h") and "__pycache__" not in path.parts
    )
    text = "".join(f"{path.relative_to(home)} {digest_bytes(path.read_bytes())}\n" for path in names)
    return digest_bytes(text.encode())


def host_digest() -> str:
    """Return a SHA-256 that stands for this machine: its processor, cores and machine id, none of which it tells."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = platform.node()
    facts = describe_environment()
    return digest_bytes(f"{machine} {facts['cpu']} {facts['cores']}".encode())


def _cpu_name() -> str:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith(("model name", "Processor", "Model")):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
