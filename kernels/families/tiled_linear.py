"""Families `<kind>_linear`: y = x w^T, 1 to 8 tokens, over the kinds of families/tiled.py."""

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
class TiledLinear:
    kind: TiledKind

    @property
    def FAMILY(self) -> str:
        return f"{self.kind.name}_linear"

    def space(self) -> Space:
        """Return the parameters and their values."""
        return self.kind.space((1, 2, 4))

    def default_point(self) -> Point:
        """Return the plain starting point: one tile at a time."""
        return self.kind.default_point(1)

    def points(self, definition: Definition, isa: str) -> list[Point]:
        """Return all points worth trying on `definition`, the default first; none where rows are not whole parts."""
        k, lanes = const_of(definition, "K"), lanes_of(isa)
        return [p for p in combinations(self.space(), self.default_point()) if self.kind.allows(p, k, lanes)]

    def render(self, definition: Definition, point: Point, isa: str) -> Candidate:
        """Return the candidate at `point`. Raises ValueError on a point outside the space."""
        check_point(self.space(), point)
        n, k, lanes = const_of(definition, "N"), const_of(definition, "K"), lanes_of(isa)
        constants = {"N": n, "K": k, "COLUMNS": k} | self.kind.constants(point)
        parts = ("batch.cpp", *self.kind.parts, "tiles_dot.cpp", "tiles_linear.cpp")
        size = self.kind.packed_bytes(-(-n // lanes), k, lanes, int(point["tiles"]))
        packed = (PackedTensor(name="tiles", shape=(size,), dtype="int8"),)
        source = render_source(self.FAMILY, parts, constants, point["schedule"], isa)
        return template_candidate(definition, self.FAMILY, source, isa, point, packed, RANGES)


def of_kind(kind: str) -> TiledLinear:
    """Return the family over weights of `kind`. Raises KeyError on one that is not packed in tiles."""
    return TiledLinear(KINDS[kind])
