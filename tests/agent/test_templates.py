"""The coordinate search over a family's points."""

from __future__ import annotations

import pytest

from kernelwright.agent.propose import History
from kernelwright.agent.templates import Templates
from kernelwright.kernels.families.table import FAMILIES, family_of
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from tests.agent.scripted_bench import verdict
from tests.agent.test_solve import problem, target

FAMILY = family_of(problem().definition)
assert FAMILY is not None


def test_it_starts_at_the_default_point() -> None:
    first = Templates("x86-64-v3").propose(problem(), target(), History())
    assert first is not None and first.parameters == FAMILY.default_point()


def test_it_climbs_to_the_best_point_one_parameter_at_a_time() -> None:
    """A separable landscape: each parameter's last value is best. The search must end there."""
    proposer, history = Templates("x86-64-v3"), History()
    sensible = FAMILY.points(problem().definition, "x86-64-v3")

    def speed(point: dict[str, int | str]) -> float:
        return 1.1 + sum(FAMILY.space()[name].index(value) for name, value in point.items())

    while (candidate := proposer.propose(problem(), target(), history)) is not None:
        assert not history.knows(candidate), "nothing is proposed twice"
        history.add(candidate, verdict(candidate, "search", "faster", speed(candidate.parameters)))
    best = history.ranked()[0].candidate.parameters
    neighbours = [{**best, name: v} for name, values in FAMILY.space().items() for v in values]
    assert all(speed(best) >= speed(point) for point in neighbours if point in sensible)
    assert len(history.tried) < len(sensible), "a search, not an enumeration"


def test_an_op_without_a_family_gets_no_proposal() -> None:
    lone = problem()
    strange = lone.model_copy(update={"definition": lone.definition.model_copy(update={"op_type": "unheard_of"})})
    assert Templates("x86-64-v3").propose(strange, target(), History()) is None


SHAPES = {"linear": {"n": 64, "k": 512}, "silu": {"f": 256, "h": 512}, "block": {"f": 256, "h": 512}}
KINDS_OF_WEIGHTS = [name for name in FAMILIES if name.startswith(("q4_", "q6_", "q8_", "bf16_")) and "att" not in name]


@pytest.mark.parametrize("op_type", KINDS_OF_WEIGHTS)
def test_every_kind_of_weights_is_searched(op_type: str) -> None:
    """Whatever the kind, a problem of that slot gets the default point first, then one change at a time."""
    definition = define(op_type, **SHAPES[op_type.rsplit("_", 1)[-1]])
    op, family = op_of(definition), family_of(definition)
    posed = Problem(
        target=None, definition=definition, contract=op.contract(definition), incumbent=op.incumbent(definition),
        workloads=(), ranges={}, timed_axes={"T": 1}, num_weight_sets=1,
    )  # fmt: skip
    assert family is not None
    proposer, history = Templates("x86-64-v3"), History()
    for number in range(5):
        candidate = proposer.propose(posed, target(), history)
        assert candidate is not None and candidate.author == op_type == family.FAMILY
        changed = {k for k, v in candidate.parameters.items() if v != family.default_point()[k]}
        assert len(changed) == min(number, 1)
        history.add(candidate, verdict(candidate, "search", "slower", 0.9 - number / 100))
