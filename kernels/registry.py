"""The table of ops: op type → the module that defines it."""

from __future__ import annotations

import functools
import re
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.cost import Cost

if TYPE_CHECKING:
    import torch

OPS = {
    "add_rmsnorm": "kernelwright.kernels.ops.add_rmsnorm",
    "rmsnorm": "kernelwright.kernels.ops.rmsnorm",
    "q4_1_linear": "kernelwright.kernels.ops.q4_1_linear",
    "q8_0_linear": "kernelwright.kernels.ops.q8_0_linear",
    "q4_0_linear": "kernelwright.kernels.ops.q4_0_linear",
    "q4_k_linear": "kernelwright.kernels.ops.q4_k_linear",
    "q6_k_linear": "kernelwright.kernels.ops.q6_k_linear",
    "bf16_linear": "kernelwright.kernels.ops.bf16_linear",
    "f32_linear": "kernelwright.kernels.ops.f32_linear",
    "q4_1_gate_up_silu": "kernelwright.kernels.ops.q4_1_gate_up_silu",
    "q4_0_gate_up_silu": "kernelwright.kernels.ops.q4_0_gate_up_silu",
    "q8_0_gate_up_silu": "kernelwright.kernels.ops.q8_0_gate_up_silu",
    "q4_k_gate_up_silu": "kernelwright.kernels.ops.q4_k_gate_up_silu",
    "q6_k_gate_up_silu": "kernelwright.kernels.ops.q6_k_gate_up_silu",
    "bf16_gate_up_silu": "kernelwright.kernels.ops.bf16_gate_up_silu",
    "f32_gate_up_silu": "kernelwright.kernels.ops.f32_gate_up_silu",
    "q4_1_linear_bias": "kernelwright.kernels.ops.q4_1_linear_bias",
    "q8_0_linear_bias": "kernelwright.kernels.ops.q8_0_linear_bias",
    "f32_linear_bias": "kernelwright.kernels.ops.f32_linear_bias",
    "q4_1_gate_up_gelu": "kernelwright.kernels.ops.q4_1_gate_up_gelu",
    "f32_gate_up_gelu": "kernelwright.kernels.ops.f32_gate_up_gelu",
    "rope_cache": "kernelwright.kernels.ops.rope_cache",
    "norm_rope_cache": "kernelwright.kernels.ops.norm_rope_cache",
    "decode_attention": "kernelwright.kernels.ops.decode_attention",
    "prefill_attention": "kernelwright.kernels.ops.prefill_attention",
    "sliding_decode_attention": "kernelwright.kernels.ops.sliding_decode_attention",
    "sliding_prefill_attention": "kernelwright.kernels.ops.sliding_prefill_attention",
    "q4_1_mlp_block": "kernelwright.kernels.ops.q4_1_mlp_block",
    "q4_0_mlp_block": "kernelwright.kernels.ops.q4_0_mlp_block",
    "q8_0_mlp_block": "kernelwright.kernels.ops.q8_0_mlp_block",
    "q4_k_mlp_block": "kernelwright.kernels.ops.q4_k_mlp_block",
    "q6_k_mlp_block": "kernelwright.kernels.ops.q6_k_mlp_block",
    "bf16_mlp_block": "kernelwright.kernels.ops.bf16_mlp_block",
    "q4_1_attention_block": "kernelwright.kernels.ops.q4_1_attention_block",
}


class Op(Protocol):
    """What each module of `kernels/ops` listed in `OPS` exports. `generate` may leave out weights when told to."""

    def definition(self, **consts: int) -> Definition: ...
    def contract(self, definition: Definition) -> SlotContract: ...
    def incumbent(self, definition: Definition) -> Candidate: ...
    def cost(self, definition: Definition, axes: dict[str, int]) -> Cost: ...
    def generate(
        self, definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str,
        weights: bool = True,
    ) -> dict[str, torch.Tensor | float]: ...  # fmt: skip


def op_named(op_type: str) -> Op:
    """Return the op module of `op_type`. Raises ValueError naming the known ones."""
    if op_type not in OPS:
        raise ValueError(f"unknown op type {op_type!r}; known: {', '.join(OPS)}")
    return cast(Op, import_module(OPS[op_type]))


GENERIC = "kernelwright.kernels.ops.generic"
_CONSTS = re.compile(r"_([a-z]+)(\d+)")


def op_of(definition: Definition) -> Op:
    """Return the op module of `definition`; the generic op for one that is not of our making."""
    if is_ours(definition):
        return op_named(definition.op_type)
    return cast(Op, import_module(GENERIC))


def is_ours(definition: Definition) -> bool:
    """Return whether `definition` is one that our op of its type makes: same name, inputs and outputs.

    A definition from elsewhere may use a word of ours as its op type and mean something else by it.
    """
    if definition.op_type not in OPS:
        return False
    return _interface(definition.op_type, definition.name) == (
        tuple((n, s.shape, s.dtype) for n, s in definition.inputs.items()),
        tuple((n, s.shape, s.dtype) for n, s in definition.outputs.items()),
    )


@functools.lru_cache(maxsize=256)
def _interface(op_type: str, name: str) -> tuple[object, object] | None:
    """Return inputs and outputs of the definition that `op_type` makes under `name`; None when it makes none."""
    tail = name.removeprefix(op_type)
    consts = {key: int(value) for key, value in _CONSTS.findall(tail)}
    if tail != "".join(f"_{key}{value}" for key, value in consts.items()):
        return None
    try:
        made = op_named(op_type).definition(**consts)
    except (TypeError, ValueError):
        return None
    return (
        tuple((n, s.shape, s.dtype) for n, s in made.inputs.items()),
        tuple((n, s.shape, s.dtype) for n, s in made.outputs.items()),
    )


def define(op_type: str, **consts: int) -> Definition:
    """Return the definition of `op_type` for `consts`, e.g. `define("q4_1_linear", n=960, k=576)`."""
    return op_named(op_type).definition(**consts)
