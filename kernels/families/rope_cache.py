"""Family `rope_cache`: rotation of q and k and the cache write, in one pass over qkv, any number of tokens."""

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

FAMILY = "rope_cache"


def space() -> Space:
    """Return the parameters: what threads share, from how many tokens on, and how."""
    return {"share": ("tokens", "heads"), "threads_from": (1, 8, 64), "schedule": SCHEDULES}


def default_point() -> Point:
    """Return the plain starting point."""
    return {"share": "tokens", "threads_from": 1, "schedule": "static"}


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying, the default first; none when half a head is not whole vectors."""
    if const_of(definition, "D2") % lanes_of(isa):
        return []
    return combinations(space(), default_point())


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    constants = {axis: const_of(definition, axis) for axis in ("HQ", "HKV", "D", "PAGE")}
    constants |= {"BY_HEAD": int(point["share"] == "heads"), "THREADS_FROM": int(point["threads_from"])}
    source = render_source(FAMILY, ("rope.cpp", "rope_cache.cpp"), constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point)
