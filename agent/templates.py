"""The templates proposer: coordinate search over the points of our parametrised kernel families.

It starts at a family's default point, then changes one parameter at a time on top of the best point judged so far,
the parameters in the family's own order. A family is exhausted when no single change to its best point is untried.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.agent.propose import History
from kernelwright.kernels.candidate import Candidate, Isa
from kernelwright.kernels.families.table import Family, family_of
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.target import Target

Point = dict[str, int | str]


class Templates:
    """Proposes points of the family that implements the problem's op."""

    name = "templates"

    def __init__(self, isa: Isa) -> None:
        self._isa = isa

    def propose(self, problem: Problem, target: Target, history: History) -> Candidate | None:
        family = family_of(problem.definition)
        if family is None:
            return None
        for point in _next_points(family, problem, self._isa, history):
            candidate = family.render(problem.definition, point, self._isa)
            if not history.knows(candidate):
                return candidate
        return None


def _next_points(family: Family, problem: Problem, isa: Isa, history: History) -> Iterator[Point]:
    sensible = family.points(problem.definition, isa)
    best = next((t.candidate.parameters for t in history.ranked() if t.candidate.author == family.FAMILY), None)
    yield family.default_point()
    if best is None:
        # The default failed or was not timed: walk the space from it all the same.
        best = family.default_point()
    for name, values in family.space().items():
        for value in values:
            if value != best.get(name) and {**best, name: value} in sensible:
                yield {**best, name: value}
