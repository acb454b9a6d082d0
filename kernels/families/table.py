"""The table of kernel families: op type → what renders candidates for it.

A module is a family itself; `module:kind` stands for the one that its `of_kind(kind)` returns.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families.rendering import Point, Space

FAMILIES = {
    "add_rmsnorm": "kernelwright.kernels.families.add_rmsnorm",
    "q4_1_linear": "kernelwright.kernels.families.q4_1_linear",
    "q8_0_linear": "kernelwright.kernels.families.q8_0_linear",
    "q4_1_gate_up_silu": "kernelwright.kernels.families.q4_1_gate_up_silu",
    "rope_cache": "kernelwright.kernels.families.rope_cache",
    "decode_attention": "kernelwright.kernels.families.decode_attention",
    "q4_1_mlp_block": "kernelwright.kernels.families.q4_1_mlp_block",
    "q4_1_attention_block": "kernelwright.kernels.families.q4_1_attention_block",
    "q4_0_linear": "kernelwright.kernels.families.tiled_linear:q4_0",
    "q4_k_linear": "kernelwright.kernels.families.tiled_linear:q4_k",
    "q6_k_linear": "kernelwright.kernels.families.tiled_linear:q6_k",
    "bf16_linear": "kernelwright.kernels.families.tiled_linear:bf16",
    "q4_0_gate_up_silu": "kernelwright.kernels.families.tiled_gate_up_silu:q4_0",
    "q8_0_gate_up_silu": "kernelwright.kernels.families.tiled_gate_up_silu:q8_0",
    "q4_k_gate_up_silu": "kernelwright.kernels.families.tiled_gate_up_silu:q4_k",
    "q6_k_gate_up_silu": "kernelwright.kernels.families.tiled_gate_up_silu:q6_k",
    "bf16_gate_up_silu": "kernelwright.kernels.families.tiled_gate_up_silu:bf16",
    "q4_0_mlp_block": "kernelwright.kernels.families.tiled_mlp_block:q4_0",
    "q8_0_mlp_block": "kernelwright.kernels.families.tiled_mlp_block:q8_0",
    "q4_k_mlp_block": "kernelwright.kernels.families.tiled_mlp_block:q4_k",
    "q6_k_mlp_block": "kernelwright.kernels.families.tiled_mlp_block:q6_k",
    "bf16_mlp_block": "kernelwright.kernels.families.tiled_mlp_block:bf16",
}


class Family(Protocol):
    """What each module listed in `FAMILIES` exports."""

    FAMILY: str

    def space(self) -> Space:
        """Return the parameters and their values."""
        ...

    def default_point(self) -> Point:
        """Return the plain starting point of a search."""
        ...

    def points(self, definition: Definition, isa: str) -> list[Point]:
        """Return all points worth trying at level `isa`, the default first; empty where the family does not fit."""
        ...

    def render(self, definition: Definition, point: Point, isa: str) -> Candidate:
        """Return the candidate at `point`. Raises ValueError on a point outside the space or an unknown level."""
        ...


def family_of(definition: Definition) -> Family | None:
    """Return the family for `definition`, or None where there is none."""
    if definition.op_type not in FAMILIES:
        return None
    name, _, kind = FAMILIES[definition.op_type].partition(":")
    module = import_module(name)
    return cast(Family, module.of_kind(kind) if kind else module)
