"""Run the sandbox as an ordinary user, from a test that runs as root: a copy that anybody can read, and no root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kernelwright.sandbox.cage import open_cage

USER = 60001
PYTHON = "/usr/bin/python3"
BECOME = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all"]


def require_ordinary_user() -> None:
    """Skip the test where we cannot become one, or where one has no Python to run."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming an ordinary user needs root and setpriv")
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    if not Path(PYTHON).exists() or subprocess.run([PYTHON, "-c", check]).returncode:
        pytest.skip("no system-wide Python 3.11 that an ordinary user could run")


@contextlib.contextmanager
def copy_readable() -> Iterator[Path]:
    """Give a folder with a copy of `kernelwright.sandbox` and what it imports, which every user can read."""
    home = Path(open_cage.__code__.co_filename).resolve().parents[1]
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        for package in ("profiles", "kernels", "sandbox"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(home / package, Path(name) / "kernelwright" / package, ignore=ignored)
        subprocess.run(["chmod", "-R", "a+rX", name], check=True)
        yield Path(name)


def run_as_ordinary_user(code: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python `code` as user `USER`; skip the test where such a user may make no namespaces."""
    whole = {"PATH": "/usr/bin:/bin", **(env or {})}
    command = [*BECOME, PYTHON, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/", env=whole)
    if "bubblewrap cannot" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"ordinary users get no namespaces here: {done.stderr[-200:]}")
    return done
