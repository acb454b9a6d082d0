"""Process: the weakest cage, a process of its own with rlimits. Level L1: its verdicts never allow a patch.

A reaper stands above the command and adopts what leaves its session and parent, so that nothing outlives the cage. It
is not protected from the command, which has the caller's user: that is what makes this L1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import RUNNER_PACKAGES, Bind, CagedProcess, Limits, cage_environment
from kernelwright.sandbox.launch import launch_with_plan, rlimits


class Process:
    name = "process"

    def check(self) -> None:
        """Nothing to check: every machine can do this."""

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
        """See `Cage.spawn`. There is no mount namespace: a bind's destination must be its source already."""
        for bind in (*ro_binds, *rw_binds):
            if bind.source.resolve() != bind.destination.resolve():
                raise EnvironmentLacks(
                    f"the process cage cannot show {bind.source} as {bind.destination}", "use the bubblewrap cage"
                )
        whole_env = {"PYTHONPATH": str(_import_root()), **cage_environment(env)}
        command = {"argv": list(argv), "env": whole_env, "supervisor": os.getpid()}
        reaper = Path(__file__).with_name("reaper.py")
        plan: dict[str, object] = {
            "argv": [sys.executable, "-I", "-S", str(reaper), "run", json.dumps(command)],
            "env": {},
            "uid": None,
            "binds": [],
            "rlimits": rlimits(limits, own_uid=False),
        }
        return launch_with_plan(plan, fds=fds, limits=limits, stdout=stdout, stderr=stderr, layers=1)


def _import_root() -> Path:
    """Return the folder on the import path that holds this very kernelwright."""
    return Path(next(iter(sys.modules["kernelwright"].__path__))).parent
