"""Observe the served engine: how fast it is over HTTP, and a profile of it at work."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

from kernelwright.engine.client import EngineClient
from kernelwright.engine.load import measure_decode, measure_prefill
from kernelwright.engine.mix import Mix, drive
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.kernels.registry import op_of
from kernelwright.profiles.attribute import attribute
from kernelwright.profiles.build import ProfileContext, SlotCost, build_profile
from kernelwright.profiles.profile import Ceilings, Machine, Profile
from kernelwright.profiles.trace import read_trace

LONE_TOKENS = 24
"""New tokens of the lone request by which a decode step at batch 1 is timed."""


def measure_engine(client: EngineClient, repeats: int, seed: int) -> dict[str, Any]:
    """Return how fast the engine answers by the client's clock, before anything is changed. For information."""
    decode = measure_decode(client, 128, 32, repeats, seed=seed)
    prefill = measure_prefill(client, 256, repeats, seed=seed + 1)
    facts = client.kernels()
    return {
        "decode_tok_s": median(m.tok_s for m in decode),
        "prefill_tok_s": median(m.tok_s for m in prefill),
        "n": repeats,
        "facts": {name: value for name, value in facts.items() if name != "kernels"},
    }


def profile_engine(
    client: EngineClient, slots: ModelSlots, mix: Mix, ceilings: Ceilings | None, max_tokens: int | None, seed: int
) -> Profile:
    """Serve `mix` under the engine's profiler and return the Profile.

    A lone decode is timed before the profiler starts and again under it, so that what the profiler costs is stated.
    `max_tokens` caps each answer of the mix (None: as the mix says).
    """
    unprofiled = _lone_step_ms(client, seed)
    facts = client.kernels()
    client.reset_prefix_cache()  # a profile of prompts that are new, though this server may have seen the mix
    client.start_profile()
    try:
        profiled = _lone_step_ms(client, seed + 1)
        drive(client, mix, max_tokens=max_tokens)
    finally:
        trace = client.stop_profile()
    context = ProfileContext(
        engine="embedded",
        model=str(facts["model"]),
        model_digest=str(facts["model_digest"]),
        configuration=str(facts["configuration"]),
        machine=machine(str(facts["torch"]), int(facts["threads"])),
        ceilings=ceilings,
        costs=_costs(trace, slots),
        step_ms_unprofiled=unprofiled,
        step_ms_profiled=profiled,
    )
    return build_profile(trace, context)


def machine(torch: str, threads: int) -> Machine:
    """Return what this machine is; `threads` are the engine's."""
    from kernelwright.kernels.isa import cpu_name, detect_isa

    return Machine(cpu=cpu_name(), isa=detect_isa(), cores=threads, torch=torch, kernel=os.uname().release)


def _lone_step_ms(client: EngineClient, seed: int) -> float:
    (lone,) = measure_decode(client, 32, LONE_TOKENS, 1, seed=seed)
    return 1e3 * median(lone.itl_s)


def _costs(trace: Path, slots: ModelSlots) -> tuple[SlotCost, ...]:
    """Return bytes and FLOPs for the slots whose cost follows from the tokens of the step alone.

    Attention also depends on the lengths of the contexts, which a range does not tell: no model rather than a guess.
    """
    definitions, costs = slots.definitions(), []
    for name, phase, tokens in attribute(read_trace(trace)).slots:
        definition = definitions.get(name)
        if definition is None or "MB" in definition.axes:
            continue
        axes = {axis: tokens for axis, spec in definition.axes.items() if spec.value is None}
        cost = op_of(definition).cost(definition, axes)
        costs.append(SlotCost(definition=name, tokens=tokens, bytes=cost.bytes, flops=cost.flops, phase=phase))
    return tuple(costs)
