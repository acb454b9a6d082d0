"""Family `q4_1_linear`: y = x w^T with Q4_1 weights, 1 to 16 tokens, weights decoded once for all tokens.

`layout` raw reads the file's blocks (lanes along a row), `rows` repacks them once (lanes across rows). `decode` direct
makes w = d q + m in a register; fold applies d and m once per block (only at one token, else direct).
"""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition
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

FAMILY = "q4_1_linear"
RANGES = {"T": SMALL_BATCH}


def space() -> Space:
    """Return the parameters and their values: rows (raw) or tiles of rows at once, accumulators, bytes ahead, …"""
    return {
        "layout": ("raw", "rows"),
        "decode": ("direct", "fold"),
        "tiles": (1, 2, 4),
        "chains": (1, 2, 4),
        "prefetch": (0, 512, 2048),
        "schedule": SCHEDULES,
    }


def default_point() -> Point:
    """Return the plain starting point: the file's own layout, one row at a time."""
    return {"layout": "raw", "decode": "direct", "tiles": 1, "chains": 1, "prefetch": 0, "schedule": "static"}


def allowed(point: Point) -> bool:
    """Return whether a point differs from its siblings and its accumulators fit the registers."""
    if int(point["tiles"]) * int(point["chains"]) > 8:
        return False
    return point["layout"] == "rows" or (point["decode"] == "direct" and point["chains"] != 4)


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying on `definition`, the default first."""
    lanes_of(isa)
    return [point for point in combinations(space(), default_point()) if allowed(point)]


def constants_of(point: Point) -> dict[str, int]:
    """Return the constants that the Q4_1 parts read, for one point."""
    tiles = int(point["tiles"])
    return {
        "TILES": tiles,
        "ROWS": tiles,
        "CHAINS": int(point["chains"]),
        "PREFETCH": int(point["prefetch"]),
        "DECODE_FOLD": int(point["decode"] == "fold"),
        "MIN_GROUPS": 4,
    }


def packed_bytes(tiles_needed: int, columns: int, lanes: int, tiles: int) -> int:
    """Return the bytes of `tiles_needed` tiles, rounded up to groups of `tiles`, over `columns`."""
    groups = -(-tiles_needed // tiles)
    return groups * tiles * (columns // 32) * 20 * lanes


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    n, k, lanes = const_of(definition, "N"), const_of(definition, "K"), lanes_of(isa)
    constants = {"N": n, "K": k, "COLUMNS": k, "OUTPUTS": n} | constants_of(point)
    packed: tuple[PackedTensor, ...] = ()
    if point["layout"] == "raw":
        parts = ("batch.cpp", "q4_1_raw.cpp", "q4_1_linear_raw.cpp")
    else:
        parts = ("batch.cpp", "q4_1_rows.cpp", "q4_1_linear_rows.cpp")
        size = packed_bytes(-(-n // lanes), k, lanes, int(point["tiles"]))
        packed = (PackedTensor(name="tiles", shape=(size,), dtype="int8"),)
    source = render_source(FAMILY, parts, constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point, packed, RANGES)
