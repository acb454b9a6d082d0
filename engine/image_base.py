"""A base image from a local root file system: `debootstrap`, then `docker import`. No registry is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.engine.image_context import BASE_PACKAGES, DEFAULT_BASE, SUITES, python_version
from kernelwright.profiles.errors import EnvironmentLacks

Docker = Any
"""A `docker.DockerClient`; the SDK has no types."""
MIRROR = "http://deb.debian.org/debian"


def base_name() -> str:
    """Return the name of the base image made here, e.g. `kernelwright-base:bookworm`. Raises EnvironmentLacks."""
    suite = SUITES.get(python_version())
    if suite is None:
        known = ", ".join(f"{python} ({suite})" for python, suite in SUITES.items())
        raise EnvironmentLacks(
            f"no Debian release has Python {python_version()}; a base can be made for {known}",
            f"Give an image with Python {python_version()} and g++: --base IMAGE",
        )
    return f"{DEFAULT_BASE}:{suite}"


def find_or_make_base(
    client: Docker, on_progress: Callable[[str], None], mirror: str = MIRROR, rootfs: Path | None = None
) -> str:
    """Return the id of the base image, made on first use. `rootfs` is a root file system that is there already.

    Raises EnvironmentLacks without root or debootstrap, or when it cannot fetch its packages.
    """
    import docker

    name = base_name()
    try:
        return str(client.images.get(name).id)
    except docker.errors.ImageNotFound:
        pass
    with tempfile.TemporaryDirectory(prefix="kw-base-") as scratch:
        folder = rootfs or _bootstrap(Path(scratch) / "rootfs", name.partition(":")[2], mirror, on_progress)
        on_progress(f"importing {name}")
        return import_rootfs(client, folder, name, Path(scratch) / "rootfs.tar")


def import_rootfs(client: Docker, folder: Path, name: str, archive: Path) -> str:
    """Import a root file system as image `name` and return its id."""
    # what belongs to one machine or can be fetched again is left out; devices are the container's own
    skipped = ["./dev/*", "./proc/*", "./sys/*", "./tmp/*", "./var/cache/apt/*", "./var/lib/apt/lists/*"]
    excludes = [f"--exclude={pattern}" for pattern in skipped]
    subprocess.run(["tar", "-C", str(folder), *excludes, "-cf", str(archive), "."], check=True)
    repository, _, tag = name.partition(":")
    client.api.import_image(src=str(archive), repository=repository, tag=tag, changes=["ENV LANG=C.UTF-8"])
    return str(client.images.get(name).id)


def _bootstrap(folder: Path, suite: str, mirror: str, on_progress: Callable[[str], None]) -> Path:
    program = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        lacks = "debootstrap is not installed" if program is None else "making a base image needs root"
        remedy = "apt-get install debootstrap, run as root" if program is None else "Run as root"
        raise EnvironmentLacks(
            lacks, f"{remedy}, or give an image with Python {python_version()} and g++: --base IMAGE"
        )
    command = [program, "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", suite, str(folder), mirror]
    on_progress(f"debootstrap {suite}, about a minute")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line.strip() or last
            if line.startswith(("I: Unpacking", "I: Configuring", "I: Retrieving")):
                on_progress(line.strip())
    if process.returncode != 0:
        raise EnvironmentLacks(
            f"debootstrap could not make a base: {last}", f"Is {mirror} reachable? Or give --base IMAGE"
        )
    return folder
