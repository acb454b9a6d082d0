"""Render a family's C++ parts and one point's constants into a candidate."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from kernelwright.kernels.candidate import AxisRange, Candidate, PackedTensor, SourceFile
from kernelwright.kernels.definition import Definition

Point = dict[str, int | str]
Space = dict[str, tuple[int | str, ...]]

LANES = {"x86-64-v4": 16, "x86-64-v3": 8, "x86-64-v2": 4, "armv8.2": 4}
"""Lanes of one vector of floats; kernelwright_simd.h derives the same from -march."""
SCHEDULES = ("static", "dynamic")
SMALL_BATCH = AxisRange(low=1, high=16)
"""Tokens or sequences of a decode step that families over weights take."""


def lanes_of(isa: str) -> int:
    """Return the lanes of a vector at level `isa`. Raises ValueError on a level without one."""
    if isa not in LANES:
        raise ValueError(f"families are rendered for one of {', '.join(LANES)}, not {isa!r}")
    return LANES[isa]


def combinations(space: Space, default: Point) -> list[Point]:
    """Return every point of `space`, the default first."""
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    return [default, *(point for point in points if point != default)]


def check_point(space: Space, point: Point) -> None:
    """Raise ValueError unless `point` names every parameter of `space` with one of its values."""
    if point.keys() != space.keys():
        raise ValueError(f"a point names exactly {', '.join(space)}; got {', '.join(point)}")
    for name, value in point.items():
        if value not in space[name]:
            raise ValueError(f"{name}={value!r} is not one of {space[name]}")


def render_source(family: str, parts: tuple[str, ...], constants: dict[str, int], schedule: str | int, isa: str) -> str:
    """Return the translation unit: headers, constants, then the parts (files of this folder) in order."""
    lines = [
        f"// {family}, rendered for {isa}.",
        "#include <kernelwright.h>",
        "#include <kernelwright_simd.h>",
        "#include <omp.h>",
        "#include <stdlib.h>",
        "using namespace kw;",
        f'static_assert(W == {lanes_of(isa)}, "compiled for another instruction set level than rendered for");',
        *(f"constexpr int64_t {name} = {value};" for name, value in constants.items()),
        f"#define SCHEDULE {schedule}",
        "",
    ]
    folder = Path(__file__).parent
    return "\n".join(lines) + "\n".join((folder / part).read_text() for part in parts)


def template_candidate(
    definition: Definition,
    family: str,
    source: str,
    isa: str,
    point: Point,
    packed: tuple[PackedTensor, ...] = (),
    ranges: dict[str, AxisRange] | None = None,
) -> Candidate:
    """Return the candidate of one rendered point."""
    return Candidate(
        definition=definition.name,
        language="cpp",
        sources=(SourceFile(path="kernel.cpp", content=source),),
        prepare="prepare" if packed else None,
        packed=packed,
        ranges=ranges or {},
        isa=isa,  # type: ignore[arg-type]  # checked by the model
        proposer="templates",
        author=family,
        parameters=point,
    )
