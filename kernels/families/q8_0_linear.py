"""Family `q8_0_linear`: y = x w^T with Q8_0 weights (the output head), 1 to 16 tokens, weights decoded once for all.

`layout` raw reads the file's blocks (lanes along a row), `rows` repacks them once (lanes across rows).
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

FAMILY = "q8_0_linear"
RANGES = {"T": SMALL_BATCH}


def space() -> Space:
    """Return the parameters and their values: rows (raw) or tiles of rows at once, accumulators, bytes ahead, …"""
    return {
        "layout": ("raw", "rows"),
        "tiles": (1, 2, 4),
        "chains": (1, 2, 4),
        "prefetch": (0, 512, 2048),
        "schedule": SCHEDULES,
    }


def default_point() -> Point:
    """Return the plain starting point: the file's own layout, one row at a time."""
    return {"layout": "raw", "tiles": 1, "chains": 1, "prefetch": 0, "schedule": "static"}


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying on `definition`, the default first."""
    lanes_of(isa)
    return [p for p in combinations(space(), default_point()) if int(p["tiles"]) * int(p["chains"]) <= 8]


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    n, k, lanes, tiles = const_of(definition, "N"), const_of(definition, "K"), lanes_of(isa), int(point["tiles"])
    groups = -(-n // (lanes * tiles))
    raw = point["layout"] == "raw"
    size = n * (k // 32) * 34 if raw else groups * tiles * (k // 32) * 34 * lanes
    constants = {
        "N": n,
        "K": k,
        "COLUMNS": k,
        "OUTPUTS": n,
        "TILES": tiles,
        "ROWS": tiles,
        "CHAINS": int(point["chains"]),
        "PREFETCH": int(point["prefetch"]),
        "MIN_GROUPS": 4,
        "WEIGHT_RANK": 2 if raw else 1,
        "WEIGHT_BYTES": size,
    }
    parts = ("batch.cpp", "q8_0_raw.cpp" if raw else "q8_0_rows.cpp", "q8_0_linear_run.cpp")
    packed = () if raw else (PackedTensor(name="tiles", shape=(size,), dtype="int8"),)
    source = render_source(FAMILY, parts, constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point, packed, RANGES)
