"""Family `add_rmsnorm`: residual addition and RMS norm, a row at a time, any number of tokens."""

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

FAMILY = "add_rmsnorm"


def space() -> Space:
    """Return the parameters: accumulators, from how many tokens on threads share the rows, and how."""
    return {"chains": (1, 2, 4), "threads_from": (2, 16, 64), "schedule": SCHEDULES}


def default_point() -> Point:
    """Return the plain starting point."""
    return {"chains": 1, "threads_from": 2, "schedule": "static"}


def points(definition: Definition, isa: str) -> list[Point]:
    """Return all points worth trying, the default first; none when rows are not whole vectors."""
    if const_of(definition, "H") % lanes_of(isa):
        return []
    return combinations(space(), default_point())


def render(definition: Definition, point: Point, isa: str) -> Candidate:
    """Return the candidate at `point`. Raises ValueError on a point outside the space."""
    check_point(space(), point)
    constants = {
        "H": const_of(definition, "H"),
        "CHAINS": int(point["chains"]),
        "THREADS_FROM": int(point["threads_from"]),
    }
    source = render_source(FAMILY, ("norm.cpp", "add_rmsnorm.cpp"), constants, point["schedule"], isa)
    return template_candidate(definition, FAMILY, source, isa, point)
