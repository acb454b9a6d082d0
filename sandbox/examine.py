"""Examine: which cages this machine can build, and the isolation level each reaches: one is built and measured."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from kernelwright.profiles.errors import EnvironmentLacks
from kernelwright.sandbox.cage import CAGES, CagedProcess, Limits, open_cage
from kernelwright.sandbox.cgroup import create_group
from kernelwright.sandbox.isolation import Level, measure

COST_OF_LEVEL = "verdicts of this cage are `unverified`: no patch"
COST_OF_NONE = "without a cage of L3 verdicts are `unverified`: no patch"
_TRIAL = Limits(memory_bytes=256 << 20, processes=8, cpu_seconds=10)


@dataclass(frozen=True, slots=True)
class CageReport:
    """What one cage is worth here. `level` is None when it cannot be built; `lacking` then says why."""

    name: str
    level: Level | None
    limits_by: str = ""
    lacking: str = ""
    """What it lacks for being built, or for the next level."""
    remedy: str = ""

    @property
    def cost(self) -> str:
        """What its level costs; empty when it allows patches."""
        if self.level is None:
            return COST_OF_NONE
        return "" if self.level in ("L3", "L4") else COST_OF_LEVEL


def examine_cages() -> tuple[CageReport, ...]:
    """Return one report per kind of cage, the default one first."""
    return tuple(examine_cage(name) for name in CAGES)


def examine_cage(name: str) -> CageReport:
    """Start `sleep` in the cage `name`, measure it from outside, end it; what is lacking is reported, not raised."""
    try:
        cage = open_cage(name)
        with cage.spawn(["/bin/sleep", "30"], limits=_TRIAL, stderr=subprocess.PIPE) as caged:
            pid = caged.inner_pid()
            if pid is None:
                return _failed(name, caged)
            level, facts = measure(pid)
            return CageReport(name, level, caged.limits_by, facts["lacking"], _remedy(name, level))
    except EnvironmentLacks as lack:
        return CageReport(name, None, lacking=lack.message, remedy=lack.remedy)
    except ProcessLookupError:
        return CageReport(name, None, lacking="what it started ended at once", remedy="see the log of the daemon")


def examine_groups() -> tuple[str, tuple[str, ...]]:
    """Return what a cage's own control group is called here and what it limits; ('', ()) where none can be made."""
    group = create_group(64 << 20, 8)
    if group is None:
        return "", ()
    group.remove()
    return group.kind, group.limited


def _failed(name: str, caged: CagedProcess) -> CageReport:
    from kernelwright.sandbox.remedy import explain_refusal

    caged.kill()
    said = caged.stderr.read().decode(errors="replace").strip() if caged.stderr else ""
    cause, remedy = explain_refusal()
    return CageReport(name, None, lacking=f"{said or 'it ended at once'} ({cause})", remedy=remedy)


def _remedy(name: str, level: Level) -> str:
    if level == "L3":
        return ""
    return "use the bubblewrap or the docker cage" if name == "process" else "run kernelwright as root, or as one user"
