"""Process: the weakest cage, a process of its own with rlimits. Level L1: its verdicts never allow a patch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import IO

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.bubblewrap import launch_with_plan, rlimits
from kernelwright.sandbox.cage import RUNNER_PACKAGES, Bind, CagedProcess, Limits, cage_environment


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
        """See `Cage.spawn`. There is no mount namespace: binds must have equal source and destination."""
        for bind in (*ro_binds, *rw_binds):
            if bind.source != bind.destination:
                raise EnvironmentLacks(
                    f"the process cage cannot show {bind.source} as {bind.destination}", "use the bubblewrap cage"
                )
        command = [shutil.which(argv[0]) or argv[0], *argv[1:]]
        plan: dict[str, object] = {
            "argv": command,
            "env": cage_environment(env),
            "uid": None,
            "binds": [],
            "rlimits": rlimits(limits, own_uid=False),
        }
        return launch_with_plan(plan, fds=fds, limits=limits, stdout=stdout, stderr=stderr, nested=False)
