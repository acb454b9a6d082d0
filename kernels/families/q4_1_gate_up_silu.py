"""Family `q4_1_gate_up_silu`: y = silu(x w_gate^T) * (x w_up^T) with Q4_1 weights, 1 to 16 tokens.

Parameters as in the family `q4_1_linear`; `tiles` counts gate and up tiles together, so it is even.
"""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families import q4_1_linear
from kernelwright.kernels.families.rendering import (
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

FAMILY = "q4_1_gate_up_silu"
RANGES = {"T": SMALL_BATCH}


def space() -> Space:
    """Return the parameters and their values."""
    return q4_1_linear.space() | {"tiles": (2, 4)}


def default_point() -> Point:
    """Return the plain starting point: the file's own layout, one gate and one up row at a time."""
    return q4_1_linear.default_point() | {"tiles": 2}


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying on `definition`, the default first."""
    lanes_of(isa)
    return [point for point in combinations(space(), default_point()) if q4_1_linear.allowed(point)]


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    f, h, lanes = const_of(definition, "F"), const_of(definition, "H"), lanes_of(isa)
    constants = {"F": f, "H": h, "COLUMNS": h, "OUTPUTS": f} | q4_1_linear.constants_of(point)
    packed: tuple[PackedTensor, ...] = ()
    if point["layout"] == "raw":
        parts = ("batch.cpp", "q4_1_raw.cpp", "q4_1_gate_up_silu_raw.cpp")
    else:
        parts = ("batch.cpp", "q4_1_rows.cpp", "q4_1_gate_up_silu_rows.cpp")
        size = q4_1_linear.packed_bytes(2 * -(-f // lanes), h, lanes, int(point["tiles"]))
        packed = (PackedTensor(name="tiles", shape=(size,), dtype="int8"),)
    source = render_source(FAMILY, parts, constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point, packed, RANGES)
