"""Which target comes next."""

from __future__ import annotations

import pytest

from kernelwright.agent.schedule import LEAST_SECONDS, next_target, plan_targets
from kernelwright.kernels.registry import define, op_of
from tests.agent.test_compose import CONTRACTS, target

USES = {"norm": 61, "up": 30, "block": 30}


def ranked(**ceilings: float):  # type: ignore[no-untyped-def]
    return [target(name, 1e4, 0.3).model_copy(update={"ceiling": value}) for name, value in ceilings.items()]


def following(
    done: set[str], accepted: set[str], left: float = LEAST_SECONDS, **ceilings: float
) -> tuple[str, float] | None:
    found = next_target(ranked(**ceilings), done, accepted, CONTRACTS, USES, left)
    return (found[0].definition, found[1]) if found else None


def test_the_one_with_most_to_gain_comes_first_and_gets_its_share_of_the_spare_time() -> None:
    name, seconds = following(set(), set(), left=200 + 2 * LEAST_SECONDS, norm=2.0, up=1.5, block=4.0) or ("", 0.0)
    assert name == "block"
    outside = 0.5 * 31 / 61  # of norm's 61 uses 30 lie inside the block, all of up's do
    assert seconds == pytest.approx(LEAST_SECONDS + 200 * 0.75 / (0.75 + outside))


def test_the_last_one_gets_all_that_is_left_and_never_more() -> None:
    assert following({"block"}, {"block"}, left=300, norm=1.1, up=1.5, block=1.8) == ("norm", 300)
    assert following(set(), set(), left=7, up=1.5) == ("up", 7)


def test_an_accepted_region_leaves_its_ops_only_their_other_uses() -> None:
    assert following({"block"}, {"block"}, norm=1.1, up=1.5, block=1.8) == ("norm", LEAST_SECONDS)


def test_a_region_that_failed_gives_its_ops_back() -> None:
    assert following({"block"}, set(), norm=1.1, up=1.5, block=1.8) == ("up", LEAST_SECONDS)


def test_ops_with_nothing_left_to_gain_are_not_tried() -> None:
    assert following({"block", "norm"}, {"block"}, norm=1.1, up=1.5, block=1.8) is None


def test_what_is_done_does_not_come_again() -> None:
    assert following({"up"}, set(), up=1.5) is None


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
