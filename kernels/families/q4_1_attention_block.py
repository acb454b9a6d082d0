"""Family `q4_1_attention_block`: norm, qkv, rope, cache write, attention and output projection of decode in one region.

1 to 16 sequences. Parameters of the linear part as in `q4_1_mlp_block`, of the attention part as in `decode_attention`.
"""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families import decode_attention
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

FAMILY = "q4_1_attention_block"
RANGES = {"B": SMALL_BATCH}
PARTS = (
    "norm.cpp", "q4_1_rows.cpp", "rope.cpp", "attention_parts.cpp", "pages.cpp", "q4_1_attention_block.cpp",
)  # fmt: skip


def space() -> Space:
    """Return the parameters and their values."""
    return {
        "tiles": (1, 2, 4),
        "chains": (1, 2),
        "prefetch": (0, 512),
        "split": (0, 32, 64, 128),
        "chunk": (16, 32),
        "schedule": SCHEDULES,
    }


def default_point() -> Point:
    """Return the plain starting point."""
    return {"tiles": 1, "chains": 1, "prefetch": 0, "split": 0, "chunk": 16, "schedule": "static"}


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying, the default first; none where the family does not fit."""
    if const_of(definition, "H") % lanes_of(isa) or not decode_attention.fits(definition, isa):
        return []
    return [point for point in combinations(space(), default_point()) if decode_attention.allowed(point)]


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    lanes, tiles = lanes_of(isa), int(point["tiles"])
    axes = {axis: const_of(definition, axis) for axis in ("H", "HQ", "HKV", "D", "PAGE")}
    values = {key.upper(): int(point[key]) for key in ("tiles", "chains", "prefetch", "split", "chunk")}
    qkv = packed_bytes(-(-const_of(definition, "QKV") // lanes), axes["H"], lanes, tiles)
    o = packed_bytes(-(-axes["H"] // lanes), axes["HQ"] * axes["D"], lanes, tiles)
    packed = (
        PackedTensor(name="weight", shape=(axes["H"],), dtype="float32"),
        PackedTensor(name="cos", shape=(), dtype="float32"),
        PackedTensor(name="sin", shape=(), dtype="float32"),
        PackedTensor(name="qkv_tiles", shape=(qkv,), dtype="int8"),
        PackedTensor(name="o_tiles", shape=(o,), dtype="int8"),
    )
    source = render_source(FAMILY, PARTS, axes | values, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point, packed, RANGES)
