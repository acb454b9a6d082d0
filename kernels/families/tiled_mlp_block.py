"""Families `<kind>_mlp_block`: the whole MLP in one parallel region, 1 to 8 tokens, kinds: families/tiled.py.

Weights are decoded one by one: there is no folding.
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
class TiledMlpBlock:
    kind: TiledKind

    @property
    def FAMILY(self) -> str:
        return f"{self.kind.name}_mlp_block"

    def space(self) -> Space:
        """Return the parameters and their values."""
        space = self.kind.space((2, 4)) | {"chains": (1, 2)}
        decodes = tuple(decode for decode in self.kind.decodes if decode != "fold")
        space.pop("decode", None)
        return ({"decode": decodes} if len(decodes) > 1 else {}) | space

    def default_point(self) -> Point:
        """Return the plain starting point."""
        point = self.kind.default_point(2)
        return {name: value for name, value in point.items() if name in self.space()}

    def points(self, definition: Definition, isa: str) -> list[Point]:
        """Return all points worth trying, the default first; none when rows are not whole vectors and parts."""
        f, h, lanes = const_of(definition, "F"), const_of(definition, "H"), lanes_of(isa)
        if h % lanes:
            return []
        points = combinations(self.space(), self.default_point())
        return [p for p in points if all(self.kind.allows(p, columns, lanes) for columns in (f, h))]

    def render(self, definition: Definition, point: Point, isa: str) -> Candidate:
        """Return the candidate at `point`. Raises ValueError on a point outside the space."""
        check_point(self.space(), point)
        f, h, lanes, tiles = const_of(definition, "F"), const_of(definition, "H"), lanes_of(isa), int(point["tiles"])
        constants = {"F": f, "H": h} | self.kind.constants(point)
        up, down = (
            self.kind.packed_bytes(*size, lanes, tiles) for size in ((2 * -(-f // lanes), h), (-(-h // lanes), f))
        )
        packed = (
            PackedTensor(name="weight", shape=(h,), dtype="float32"),
            PackedTensor(name="gate_up_tiles", shape=(up,), dtype="int8"),
            PackedTensor(name="down_tiles", shape=(down,), dtype="int8"),
        )
        parts = ("norm.cpp", *self.kind.parts, "tiles_dot.cpp", "tiles_mlp_block.cpp")
        source = render_source(self.FAMILY, parts, constants, point["schedule"], isa)
        return template_candidate(definition, self.FAMILY, source, isa, point, packed, RANGES)


def of_kind(kind: str) -> TiledMlpBlock:
    """Return the family over weights of `kind`. Raises KeyError on one that is not packed in tiles."""
    return TiledMlpBlock(KINDS[kind])
