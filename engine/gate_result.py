"""GateResult: what the gate says about a pack, and on what evidence."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from kernelwright.engine.gate_fidelity import PhaseFidelity
from kernelwright.engine.gate_generate import GenerationCheck
from kernelwright.engine.gate_hidden import HiddenDrift
from kernelwright.engine.gate_limits import Ruling, State
from kernelwright.engine.gate_liveness import LiveKernel
from kernelwright.engine.gate_modes import ModeDrift
from kernelwright.engine.gate_speed import EngineComparison
from kernelwright.engine.gate_tools import ToolCheck
from kernelwright.sandbox.isolation import Level


class GateResult(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What the gate says about a pack, and on what evidence."""

    schema_version: Literal[1] = 1
    pack: str
    """Digest of the PackManifest."""
    model_digest: str
    state: State
    reasons: tuple[str, ...] = ()
    """Why it is not a pass."""
    isolation: Level
    """The lower of both engines', measured from outside."""
    isolation_facts: dict[str, str]
    decode: EngineComparison
    prefill: EngineComparison
    fidelity: tuple[PhaseFidelity, ...]
    """decode (batch 1), decode_batch8, prefill."""
    rulings: dict[str, Ruling]
    kernels: tuple[LiveKernel, ...]
    generation: GenerationCheck
    modes: tuple[ModeDrift, ...] = ()
    """Each engine against itself under changes that may not matter."""
    hidden: HiddenDrift | None = None
    tools: ToolCheck | None = None
    brief: bool = False
    """Fewer forced tokens than a gate should have, for want of time."""
    resident_bytes: tuple[int, int]
    """Incumbent, patched; after scoring, everything in the cage, read in /proc."""
    ready_s: tuple[float, float]
    """From start to healthy; incumbent, patched."""
    threads: int | None
    seconds: dict[str, float]
    """By stage of the gate."""

    @property
    def idle(self) -> tuple[str, ...]:
        """Candidates of the pack that served no call; what is committed leaves them out (`keep_kernels`)."""
        return tuple(kernel.candidate for kernel in self.kernels if kernel.candidate and not kernel.hits)

    @property
    def passed(self) -> bool:
        """Whether the pack may be committed."""
        return self.state == "pass"
