"""Family `decode_attention`: paged attention of one token per sequence, online softmax, contexts cut into parts.

`split` is the tokens of one part (0: a context is one part), `chunk` the tokens per step of the online softmax. Parts
let all threads work even at batch 1, where the cache heads alone may not share out evenly.
"""

from __future__ import annotations

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.families.rendering import (
    SCHEDULES,
    Point,
    Space,
    check_point,
    combinations,
    lanes_of,
    render_source,
    template_candidate,
)
from kernelwright.kernels.ops.writing import const_of

FAMILY = "decode_attention"
PARTS = ("attention_parts.cpp", "pages.cpp", "decode_attention.cpp")


def space() -> Space:
    """Return the parameters and their values."""
    return {
        "split": (0, 32, 64, 128, 256),
        "chunk": (16, 32, 64),
        "threads_from": (1, 64),
        "schedule": SCHEDULES,
    }


def default_point() -> Point:
    """Return the plain starting point: one part per context and cache head."""
    return {"split": 0, "chunk": 16, "threads_from": 1, "schedule": "static"}


def fits(definition: Definition, isa: str) -> bool:
    """Return whether heads and pages are whole vectors and query heads share out evenly."""
    lanes = lanes_of(isa)
    whole = (
        const_of(definition, "D2") % lanes == 0 if "D2" in definition.axes else const_of(definition, "D") % lanes == 0
    )
    grouped = const_of(definition, "HQ") % const_of(definition, "HKV") == 0
    return whole and grouped and 16 % const_of(definition, "PAGE") == 0


def allowed(point: Point) -> bool:
    """Return whether a chunk is no longer than a part."""
    return point["split"] == 0 or int(point["chunk"]) <= int(point["split"])


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying, the default first; none where the family does not fit."""
    if not fits(definition, isa):
        return []
    return [point for point in combinations(space(), default_point()) if allowed(point)]


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    constants = {axis: const_of(definition, axis) for axis in ("HQ", "HKV", "D", "PAGE")}
    constants |= {
        "SPLIT": int(point["split"]),
        "CHUNK": int(point["chunk"]),
        "THREADS_FROM": int(point["threads_from"]),
    }
    source = render_source(FAMILY, PARTS, constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point)
