"""Profile: what one capture of one engine saw, summed.

Times are integers in nanoseconds of *self* time: a slot's time excludes the slots nested inside it, so
`sum(slot.self_ns) + unattributed_ns == busy_ns` holds exactly.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, model_validator

Phase = Literal["decode", "prefill"]


class SlotTime(BaseModel, frozen=True, extra="forbid"):
    """Time of one slot in one phase at one step bucket."""

    definition: str
    """Name of the slot's Definition, e.g. `q4_1_gate_up_silu_h576_f1536`."""
    phase: Phase
    tokens: int
    """Tokens in the step (the step bucket)."""
    calls: int
    self_ns: int
    bytes_per_call: int | None = None
    """Least bytes one call must move (weights, inputs, outputs); None where there is no model."""
    flops_per_call: int | None = None
    """Least floating-point operations of one call; None where there is no model."""


class Ceilings(BaseModel, frozen=True, extra="forbid"):
    """What this machine was measured to reach, with the engine's own thread count."""

    dram_bytes_per_s: float
    cache_bytes_per_s: float
    """Streaming reads of a buffer that fits the last-level cache."""
    fp32_flops_per_s: float
    threads: int
    working_set_bytes: int
    """Size of the buffer behind `dram_bytes_per_s`: the model's own weight footprint."""
    bf16_flops_per_s: float = 0.0
    """Of its instruction for dot products; 0 where there is none, or an AMX unit, which is not measured."""
    int8_ops_per_s: float = 0.0
    l1_bytes_per_s: float = 0.0
    """Streaming reads of a buffer half the size of the first-level data caches of all threads; 0 where unknown."""
    l2_bytes_per_s: float = 0.0
    l1_bytes: int = 0
    """Size of the first-level data caches of all threads together; 0 where unknown."""
    l2_bytes: int = 0


class Machine(BaseModel, frozen=True, extra="forbid"):
    cpu: str
    isa: str
    cores: int
    torch: str
    kernel: str


class Profile(BaseModel, frozen=True, extra="forbid"):
    schema_version: Literal[1] = 1
    engine: str
    model: str
    """Name of the model served."""
    model_digest: str
    """SHA-256 of the weights file."""
    configuration: str
    """Digest of the engine's configuration; a profile of another configuration is stale."""
    device: Literal["cpu", "cuda"] = "cpu"
    machine: Machine
    ceilings: Ceilings | None
    trace: str
    """SHA-256 of the trace file."""
    busy_ns: int
    """Time inside engine steps in the window."""
    unattributed_ns: int
    """Step time outside every slot (Python, sampling, scheduling)."""
    steps: dict[Phase, int]
    step_ns: dict[Phase, int]
    """Summed time of the steps of each phase."""
    step_ms_profiled: float
    """Median decode step at batch 1 with the profiler on, in ms."""
    step_ms_unprofiled: float
    """The same with the profiler off, in ms: what the profiler costs."""
    slots: tuple[SlotTime, ...]

    @model_validator(mode="after")
    def _adds_up(self) -> Profile:
        total = sum(slot.self_ns for slot in self.slots) + self.unattributed_ns
        if total != self.busy_ns:
            raise ValueError(f"slot times and the unattributed rest sum to {total} ns, busy is {self.busy_ns} ns")
        return self
