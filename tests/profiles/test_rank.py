from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.profile import Profile, SlotTime
from kernelwright.profiles.rank import check_fresh, rank_targets

Maker = Callable[..., Profile]


def slot(name: str, share: float, roofline_share: float | None = None, phase: str = "decode") -> SlotTime:
    """Return a slot that takes `share` of its phase in 10 calls and runs at `roofline_share` of its memory roofline."""
    self_ns = round(share * 1_000_000)
    num_bytes = None if roofline_share is None else round(self_ns / 10 * roofline_share * 10)
    flops = None if num_bytes is None else 0
    return SlotTime(
        definition=name, phase=phase, tokens=1, calls=10, self_ns=self_ns, bytes_per_call=num_bytes,
        flops_per_call=flops,
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_smaller_slot_far_from_its_roofline_ranks_above_a_larger_one_near_it(make_profile: Maker) -> None:
    profile = make_profile(slot("near", 0.30, 0.94), slot("far", 0.15, 0.20))
    first, second = rank_targets(profile, {"near", "far"})
    assert (first.definition, second.definition) == ("far", "near")
    assert first.headroom == pytest.approx(5.0)
    assert first.ceiling == pytest.approx(1 / (1 - 0.15 * 0.8))
    assert (first.bound, first.roofline_ns, first.ns_per_call) == ("memory", pytest.approx(3000), 15_000)
    assert first.profile == digest_of(profile)


def test_a_slot_without_a_model_is_never_hidden(make_profile: Maker) -> None:
    profile = make_profile(slot("other", 0.67), slot("known", 0.20, 0.5))
    first = rank_targets(profile, lambda name: True)[0]
    assert (first.definition, first.headroom, first.roofline_ns, first.bound) == ("other", None, None, "unknown")
    assert first.ceiling == pytest.approx(1 / 0.33)


def test_without_ceilings_every_bound_is_unknown(make_profile: Maker) -> None:
    profile = make_profile(slot("a", 0.5, 0.5), ceilings=None)
    assert rank_targets(profile, {"a"})[0].headroom is None


def test_every_slot_is_ranked_or_says_why_not(make_profile: Maker) -> None:
    profile = make_profile(
        slot("sealed", 0.5, 0.5), slot("done", 0.2, 0.99), slot("tiny", 0.001),
        slot("good", 0.1, 0.1), slot("ahead", 0.1, 0.1, "prefill"),
    )  # fmt: skip
    targets = rank_targets(profile, {"done", "tiny", "good", "ahead"}, {"decode": 1.0, "prefill": 0.0})
    reasons = {target.definition: target.excluded for target in targets}
    assert len(targets) == 5
    assert targets[0].definition == "good" and reasons["good"] is None
    assert "no slot" in str(reasons["sealed"])
    assert "already as fast" in str(reasons["done"])
    assert "too small" in str(reasons["tiny"])
    assert "no weight" in str(reasons["ahead"])
    assert [t.reachable for t in targets if t.definition == "sealed"] == [False]


def test_the_weights_order_the_phases(make_profile: Maker) -> None:
    profile = make_profile(slot("a", 0.2, 0.5, "decode"), slot("b", 0.3, 0.5, "prefill"))
    assert rank_targets(profile, {"a", "b"})[0].definition == "a"
    assert rank_targets(profile, {"a", "b"}, {"decode": 0.1, "prefill": 0.9})[0].definition == "b"


def test_faster_than_the_roofline_has_no_ceiling_below_one(make_profile: Maker) -> None:
    target = rank_targets(make_profile(slot("a", 0.5, 2.0)), {"a"})[0]
    assert target.headroom == pytest.approx(0.5)
    assert target.ceiling == 1.0
    assert target.excluded


def test_a_slot_that_is_the_whole_step_has_a_finite_ceiling(make_profile: Maker) -> None:
    assert rank_targets(make_profile(slot("a", 1.0)), {"a"})[0].ceiling == pytest.approx(1_000_000)


def test_a_profile_of_another_configuration_is_refused(make_profile: Maker) -> None:
    profile = make_profile(slot("a", 0.5))
    check_fresh(profile, "c" * 64)
    with pytest.raises(WrongUse, match="stale") as caught:
        check_fresh(profile, "d" * 64)
    assert "profile the engine again" in caught.value.remedy
