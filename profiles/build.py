"""Build a Profile: a trace of the engine, its costs and the machine's ceilings, summed into one record."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel

from kernelwright.profiles.attribute import Attribution, attribute
from kernelwright.profiles.digest import digest_file
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.profile import Ceilings, Machine, Phase, Profile, SlotTime
from kernelwright.profiles.trace import read_trace


class SlotCost(BaseModel, frozen=True, extra="forbid"):
    """Least work of one call of a slot at one step bucket."""

    definition: str
    tokens: int
    bytes: int
    flops: int
    phase: Phase | None = None
    """Only for definitions whose cost differs between the phases at the same number of tokens; None means both."""


class ProfileContext(BaseModel, frozen=True, extra="forbid"):
    """What a trace does not say about the engine it was taken from."""

    engine: str
    model: str
    model_digest: str
    """SHA-256 of the weights file."""
    configuration: str
    """Digest of the engine's configuration."""
    device: Literal["cpu", "cuda"] = "cpu"
    machine: Machine
    ceilings: Ceilings | None
    costs: tuple[SlotCost, ...] = ()
    step_ms_unprofiled: float
    """Median decode step at batch 1 with the profiler off, ms."""
    step_ms_profiled: float | None = None
    """The same with the profiler on, ms; None: the median of the trace's own decode steps with one sequence."""


def build_profile(trace_path: Path, context: ProfileContext) -> Profile:
    """Return the Profile of the trace at `trace_path`, its slots sorted by self time, the largest first.

    Raises BrokenInput when the file is no sound trace of this engine, or holds no decode step of one sequence while
    `context` does not give the profiled step time.
    """
    trace = read_trace(trace_path)
    if trace.health.cut:
        raise BrokenInput(f"the trace {trace_path} is cut", "take it again and let the profiler finish writing it")
    attribution = attribute(trace)
    return Profile(
        engine=context.engine,
        model=context.model,
        model_digest=context.model_digest,
        configuration=context.configuration,
        device=context.device,
        machine=context.machine,
        ceilings=context.ceilings,
        trace=digest_file(trace_path),
        busy_ns=attribution.busy_ns,
        unattributed_ns=attribution.unattributed_ns,
        steps=attribution.steps,
        step_ns=attribution.step_ns,
        step_ms_profiled=_profiled_step_ms(attribution, context),
        step_ms_unprofiled=context.step_ms_unprofiled,
        slots=_slot_times(attribution, context.costs),
    )


def _profiled_step_ms(attribution: Attribution, context: ProfileContext) -> float:
    if context.step_ms_profiled is not None:
        return context.step_ms_profiled
    if not attribution.decode_step_ns:
        raise BrokenInput(
            "the trace holds no decode step of a single sequence, so the profiler's cost cannot be stated",
            "let one request decode alone inside the profiled window",
        )
    return median(attribution.decode_step_ns) / 1e6


def _slot_times(attribution: Attribution, costs: tuple[SlotCost, ...]) -> tuple[SlotTime, ...]:
    by_bucket = {(cost.definition, cost.phase, cost.tokens): cost for cost in costs}
    rows = []
    for (definition, phase, tokens), slot in attribution.slots.items():
        cost = by_bucket.get((definition, phase, tokens)) or by_bucket.get((definition, None, tokens))
        rows.append(
            SlotTime(
                definition=definition,
                phase=phase,
                tokens=tokens,
                calls=slot.calls,
                self_ns=slot.self_ns,
                bytes_per_call=cost.bytes if cost else None,
                flops_per_call=cost.flops if cost else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.self_ns, row.definition, row.phase, row.tokens)))
