"""Bytes of weights one decoded token reads: by the incumbent's storage, and by the stack's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from kernelwright.agent.compose import Accepted
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.kernels.definition import DTYPES, Definition, SlotContract
from kernelwright.kernels.ops.weights import QUANTISED


def bytes_per_token(slots: ModelSlots, chosen: Collection[str], accepted: Mapping[str, Accepted]) -> dict[str, int]:
    """Return {"incumbent", "patched"}: bytes of weights read per token decoded at batch 1.

    The incumbent reads float32 weights, dequantised at load. A kernel reads what it packed, or the raw blocks when it
    packed nothing. A region stands for the ops it hides. Tables of which one row is read (rope) are left out.
    """
    definitions, contracts = slots.definitions(), slots.contracts()
    ops = {n: slots.num_uses(n) for n, c in contracts.items() if not c.regions and n.split("_")[0] != "prefill"}
    incumbent = sum(uses * _dense(definitions[name], contracts[name]) for name, uses in ops.items())
    calls = dict(ops)
    for name in (n for n in chosen if contracts[n].regions):
        calls[name] = slots.num_uses(name)
        for part in contracts[name].regions:
            calls[part] -= slots.num_uses(name)
    patched = 0
    for name, uses in calls.items():
        definition, contract = definitions[name], contracts[name]
        if name in chosen:  # what the judge saw packed is for all uses together
            each = accepted[name].verdict.packed_bytes // slots.num_uses(name) or _raw(definition, contract)
        else:
            each = _dense(definition, contract)
        patched += uses * each
    return {"incumbent": incumbent, "patched": patched}


def _streamed(definition: Definition, contract: SlotContract) -> list[str]:
    return [name for name in contract.weights if name not in ("cos", "sin")]


def _raw(definition: Definition, contract: SlotContract) -> int:
    return sum(_size(definition, name) for name in _streamed(definition, contract))


def _dense(definition: Definition, contract: SlotContract) -> int:
    kinds = [kind for name, kind in QUANTISED.items() if definition.op_type.startswith(f"{name}_")]
    total = 0
    for name in _streamed(definition, contract):
        size = _size(definition, name)
        if kinds and definition.inputs[name].dtype == kinds[0].dtype:
            size = size // kinds[0].block_bytes * kinds[0].block_weights * 4
        total += size
    return total


def _size(definition: Definition, name: str) -> int:
    spec = definition.inputs[name]
    return prod(definition.shape_of(name, {})) * DTYPES[spec.dtype]
