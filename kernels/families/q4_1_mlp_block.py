"""Family `q4_1_mlp_block`: the whole MLP in one parallel region, 1 to 16 tokens. Parameters as in `q4_1_gate_up_silu`.

Weights are always packed in tiles of rows, and decoded directly.
"""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families.q4_1_linear import packed_bytes
from kernelwright.kernels.families.rendering import (
    SCHEDULES,
    SMALL_BATCH,
    Point,
    Space,
    check_point,
    combinations,
    lanes_of,
    render_source,
    template_candidate,
)
from kernelwright.kernels.ops.writing import const_of

FAMILY = "q4_1_mlp_block"
RANGES = {"T": SMALL_BATCH}
PARTS = ("norm.cpp", "q4_1_rows.cpp", "q4_1_mlp_block.cpp")


def space() -> Space:
    """Return the parameters and their values."""
    return {"tiles": (2, 4), "chains": (1, 2), "prefetch": (0, 512, 2048), "schedule": SCHEDULES}


def default_point() -> Point:
    """Return the plain starting point."""
    return {"tiles": 2, "chains": 1, "prefetch": 0, "schedule": "static"}


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying, the default first; none when rows are not whole vectors."""
    if const_of(definition, "H") % lanes_of(isa):
        return []
    return combinations(space(), default_point())


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    f, h, lanes, tiles = const_of(definition, "F"), const_of(definition, "H"), lanes_of(isa), int(point["tiles"])
    constants = {"F": f, "H": h, "TILES": tiles, "CHAINS": int(point["chains"]), "PREFETCH": int(point["prefetch"])}
    up = packed_bytes(2 * -(-f // lanes), h, lanes, tiles)
    down = packed_bytes(-(-h // lanes), f, lanes, tiles)
    packed = (
        PackedTensor(name="weight", shape=(h,), dtype="float32"),
        PackedTensor(name="gate_up_tiles", shape=(up,), dtype="int8"),
        PackedTensor(name="down_tiles", shape=(down,), dtype="int8"),
    )
    source = render_source(FAMILY, PARTS, constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point, packed, RANGES)
