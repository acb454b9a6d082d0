"""Families `<kind>_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T), 1 to 8 tokens, kinds: families/tiled.py.

`tiles` counts gate and up tiles together, so it is even.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families.rendering import (
    Point,
    Space,
    check_point,
    combinations,
    lanes_of,
    render_source,
    template_candidate,
)
from kernelwright.kernels.families.tiled import KINDS, RANGES, TiledKind
from kernelwright.kernels.ops.writing import const_of


@dataclass(frozen=True, slots=True)
class TiledGateUpSilu:
    kind: TiledKind

    @property
    def FAMILY(self) -> str:
        return f"{self.kind.name}_gate_up_silu"

    def space(self) -> Space:
        """Return the parameters and their values."""
        return self.kind.space((2, 4))

    def default_point(self) -> Point:
        """Return the plain starting point: one gate and one up tile at a time."""
        return self.kind.default_point(2)

    def points(self, definition: Definition, isa: str) -> list[Point]:
        """Return all points worth trying on `definition`, the default first; none where rows are not whole parts."""
        h, lanes = const_of(definition, "H"), lanes_of(isa)
        return [p for p in combinations(self.space(), self.default_point()) if self.kind.allows(p, h, lanes)]

    def render(self, definition: Definition, point: Point, isa: str) -> Candidate:
        """Return the candidate at `point`. Raises ValueError on a point outside the space."""
        check_point(self.space(), point)
        f, h, lanes = const_of(definition, "F"), const_of(definition, "H"), lanes_of(isa)
        constants = {"F": f, "H": h, "COLUMNS": h} | self.kind.constants(point)
        parts = ("batch.cpp", *self.kind.parts, "tiles_dot.cpp", "tiles_gate_up_silu.cpp")
        size = self.kind.packed_bytes(2 * -(-f // lanes), h, lanes, int(point["tiles"]))
        packed = (PackedTensor(name="tiles", shape=(size,), dtype="int8"),)
        source = render_source(self.FAMILY, parts, constants, point["schedule"], isa)
        return template_candidate(definition, self.FAMILY, source, isa, point, packed, RANGES)


def of_kind(kind: str) -> TiledGateUpSilu:
    """Return the family over weights of `kind`. Raises KeyError on one that is not packed in tiles."""
    return TiledGateUpSilu(KINDS[kind])
