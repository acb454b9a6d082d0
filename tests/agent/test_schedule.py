"""Which target comes next."""

from __future__ import annotations

from kernelwright.agent.schedule import next_target, plan_targets
from kernelwright.kernels.registry import define, op_of
from tests.agent.test_compose import CONTRACTS, target

USES = {"norm": 61, "up": 30, "block": 30}


def ranked(**ceilings: float):  # type: ignore[no-untyped-def]
    return [target(name, 1e4, 0.3).model_copy(update={"ceiling": value}) for name, value in ceilings.items()]


def test_the_one_with_most_to_gain_comes_first() -> None:
    chosen = next_target(ranked(norm=1.1, up=1.5, block=1.8), (), (), CONTRACTS, USES)
    assert chosen is not None and chosen.definition == "block"


def test_an_accepted_region_leaves_its_ops_only_their_other_uses() -> None:
    chosen = next_target(ranked(norm=1.1, up=1.5, block=1.8), {"block"}, {"block"}, CONTRACTS, USES)
    assert chosen is not None and chosen.definition == "norm", "31 of its 61 uses lie outside; all of up's lie inside"


def test_what_is_done_does_not_come_again() -> None:
    assert next_target(ranked(up=1.5), {"up"}, (), CONTRACTS, USES) is None


def test_only_restricts_and_overrides_an_exclusion() -> None:
    definition = define("q4_1_linear", n=64, k=64)
    lone = target(definition.name, 1e4, 0.3)
    excluded = lone.model_copy(update={"excluded": "too small"})
    table = {definition.name: definition}
    assert op_of(definition)
    assert plan_targets([excluded], (), table) == []
    assert plan_targets([excluded], (definition.name,), table) == [excluded]
    assert plan_targets([lone], ("another",), table) == []


def test_prefill_and_larger_steps_are_not_planned() -> None:
    definition = define("q4_1_linear", n=64, k=64)
    lone = target(definition.name, 1e4, 0.3)
    table = {definition.name: definition}
    others = [lone.model_copy(update={"phase": "prefill"}), lone.model_copy(update={"tokens": 4})]
    assert plan_targets(others, (), table) == []
