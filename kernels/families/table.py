"""The table of kernel families: op type → the module that renders candidates for it."""

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
    module = FAMILIES.get(definition.op_type)
    return cast(Family, import_module(module)) if module else None
