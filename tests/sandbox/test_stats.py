"""The statistics find planted effects and, as importantly, none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.sandbox.stats import (
    Interval,
    Launch,
    bootstrap,
    calibrate_floor,
    conclude,
    decide,
    find_drift,
    is_doubtful,
    is_narrow,
)
from kernelwright.sandbox.verify import (
    CALIBRATE_LAUNCHES,
    CALIBRATE_PAIRS,
    NARROW_LAUNCHES,
    NARROW_PAIRS,
    SEARCH_PAIRS,
)


def simulate(seed: int, effect: float, *, launches: int = 5, pairs: int = 12, noise: float = 0.02) -> list[Launch]:
    """Return launches of a candidate `effect` faster, with noise by pair, shared drift and an offset by launch."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(launches):
        drift = np.exp(np.cumsum(random.normal(0, 0.01, pairs)))
        offset = np.exp(random.normal(0, 0.003))
        incumbent = 1e-3 * drift * np.exp(np.abs(random.standard_t(3, pairs)) * noise)
        candidate = 1e-3 / (1 + effect) * offset * drift * np.exp(np.abs(random.standard_t(3, pairs)) * noise)
        found.append(Launch(tuple(incumbent), tuple(candidate)))
    return found


def judge(seed: int, effect: float) -> str:
    floor = calibrate_floor(simulate(seed + 10_000, 0.0), launches=5, pairs=12)
    return decide(bootstrap(simulate(seed, effect)), floor)[0]


def test_nothing_is_never_something() -> None:
    outcomes = [judge(seed, 0.0) for seed in range(50)]
    assert outcomes.count("faster") == 0


@pytest.mark.parametrize(("effect", "least"), [(0.05, 0.7), (0.10, 0.97)])
def test_planted_gains_are_found(effect: float, least: float) -> None:
    outcomes = [judge(seed, effect) for seed in range(30)]
    assert outcomes.count("faster") / len(outcomes) >= least


def search(seed: int, effect: float) -> str:
    """Return the outcome of a search: one launch looks, a loss is looked at twice, what is narrow has others."""
    floors = simulate(seed + 10_000, 0.0, launches=CALIBRATE_LAUNCHES, pairs=CALIBRATE_PAIRS)
    launches = simulate(seed, effect, launches=1, pairs=SEARCH_PAIRS)
    looked = launches
    if is_doubtful(launches):
        looked = simulate(seed + 30_000, effect, launches=1, pairs=SEARCH_PAIRS)
        launches = [*launches, *looked]
    if is_narrow(looked):
        launches = simulate(seed + 20_000, effect, launches=NARROW_LAUNCHES, pairs=NARROW_PAIRS)
    floor = calibrate_floor(floors, launches=len(launches), pairs=len(launches[0].incumbent))
    return decide(bootstrap(launches), floor)[0]


@pytest.mark.parametrize(("effect", "least", "most"), [(0.0, 0, 1), (0.03, 37, 40), (0.05, 39, 40)])
def test_a_search_finds_a_few_percent_and_never_none(effect: float, least: int, most: int) -> None:
    assert least <= [search(seed, effect) for seed in range(40)].count("faster") <= most


@pytest.mark.parametrize(
    ("candidate", "doubtful"),
    [((0.98, 1.0), False), ((1.1, 1.12), True), ((1.0, 1.01), True), ((1.3, 1.32), False), ((0.3, 0.31), False)],
)
def test_a_loss_that_a_stray_launch_may_have_made_is_looked_at_again(
    candidate: tuple[float, float], doubtful: bool
) -> None:
    assert is_doubtful([Launch(incumbent=(1.0,) * 16, candidate=candidate * 8)]) is doubtful
    assert not is_doubtful([])


@pytest.mark.parametrize(
    ("candidate", "narrow"),
    [
        ((0.999, 1.0), False),
        ((0.95, 1.05), True),
        ((1.0, 1.1), False),
        ((0.98, 1.0), True),
        ((0.8, 0.81), True),
        ((0.3, 0.31), False),
        ((1.4, 1.5), False),
    ],
)
def test_only_a_small_win_is_launched_again(candidate: tuple[float, float], narrow: bool) -> None:
    assert is_narrow([Launch(incumbent=(1.0,) * 16, candidate=candidate * 8)]) is narrow
    assert not is_narrow([])


def test_a_slower_one_is_slower() -> None:
    assert [judge(seed, -0.10) for seed in range(20)].count("slower") >= 19


def test_without_the_floor_noise_would_win() -> None:
    """The control switched off: one launch, and anything above 1 counts. Then the incumbent beats itself."""
    wins = sum(bootstrap(simulate(seed, 0.0, launches=1)).low > 1.0 for seed in range(100))
    assert wins > 0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), gain=st.floats(0.01, 0.5))
def test_a_faster_candidate_never_looks_slower(seed: int, gain: float) -> None:
    launches = simulate(seed, 0.0, launches=3, pairs=6)
    quicker = [Launch(x.incumbent, tuple(t / (1 + gain) for t in x.candidate)) for x in launches]
    before, after = bootstrap(launches), bootstrap(quicker)
    assert after.ratio > before.ratio
    assert after.low > before.low
    assert after.high > before.high


@settings(max_examples=25, deadline=None)
@given(
    low=st.floats(0.5, 2.0),
    width=st.floats(0, 0.5),
    floor=st.floats(0, 0.2),
    more=st.floats(0, 0.2),
)
def test_more_noise_never_turns_a_verdict_to_faster(low: float, width: float, floor: float, more: float) -> None:
    interval = Interval(low + width / 2, low, low + width, 60, 5)
    if decide(interval, floor + more)[0] == "faster":
        assert decide(interval, floor)[0] == "faster"


def test_the_interval_holds_the_ratio() -> None:
    interval = bootstrap(simulate(3, 0.04))
    assert interval.low <= interval.ratio <= interval.high
    assert (interval.n, interval.launches) == (60, 5)


def test_no_pairs_is_an_error() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        bootstrap([Launch((), ())])


def test_a_noisy_machine_is_told_so() -> None:
    outcome, reason = decide(Interval(1.04, 1.02, 1.06, 60, 5), floor=0.10)
    assert outcome == "inconclusive"
    assert "noisy" in reason


@pytest.mark.parametrize(
    ("rises", "floor", "drift"),
    [
        ([1.0] * 5, 0.0, 0.0), ([1.1] * 5, 0.0, 0.0), ([1.8] * 5, 0.0, 0.8), ([1.8] * 5, 0.3, 0.0),
        ([3.0, 2.0, 1.0, 1.0, 1.0], 0.0, 0.0),
    ],
)  # fmt: skip
def test_an_incumbent_that_is_slower_beside_than_alone_is_noticed(
    rises: list[float], floor: float, drift: float
) -> None:
    launches = [([1.0] * 8, [rise] * 12) for rise in rises]
    assert find_drift(launches, floor) == pytest.approx(drift)
    assert find_drift([], floor) == 0.0


def held_up(share: float, gain: float = 0.0, candidate_share: float = 0.0) -> list[Launch]:
    """Return launches whose arms waited for a processor for such shares of their time, and were no slower otherwise."""
    found = []
    for launch in simulate(5, gain, noise=0.005):
        incumbent = tuple(t / (1 - share) for t in launch.incumbent)
        candidate = tuple(t / (1 - candidate_share) for t in launch.candidate)
        waited = tuple(t * share for t in incumbent), tuple(t * candidate_share for t in candidate)
        found.append(Launch(incumbent, candidate, *waited))
    return found


@pytest.mark.parametrize(
    ("share", "gain", "outcome"),
    [(0.0, 0.10, "faster"), (0.10, 0.0, "inconclusive"), (0.10, 0.10, "faster"), (0.001, 0.10, "faster")],
)
def test_a_win_stands_without_what_the_incumbent_waited(share: float, gain: float, outcome: str) -> None:
    launches = held_up(share, gain)
    found = conclude(launches, 0.01, 0.95)
    assert found.outcome == outcome
    assert found.interval == bootstrap(launches), "what is reported is what was measured"
    unseen = conclude([Launch(x.incumbent, x.candidate) for x in launches], 0.01, 0.95)
    assert unseen.outcome == "faster", "without the waits it would have won"
    assert (outcome == "inconclusive") is ("busy processor" in found.reason)


@settings(max_examples=30, deadline=None)
@given(own=st.floats(0, 0.9), others=st.floats(0, 0.9), gain=st.floats(-0.2, 0.2), floor=st.floats(0, 0.1))
def test_waits_never_make_a_win(own: float, others: float, gain: float, floor: float) -> None:
    launches = held_up(others, gain, own)
    measured = conclude([Launch(x.incumbent, x.candidate) for x in launches], floor, 0.95)
    found = conclude(launches, floor, 0.95)
    assert found.outcome == measured.outcome or (measured.outcome, found.outcome) == ("faster", "inconclusive")


def test_a_candidate_that_waits_for_itself_wins_nothing() -> None:
    assert conclude(held_up(0.0, 0.0, 0.5), 0.01, 0.95).outcome == "slower"


def test_what_whole_launches_differ_by_is_in_the_floor_and_shrinks_with_more_of_them() -> None:
    random = np.random.default_rng(1)
    found = []
    for offset in (-0.06, -0.01, 0.02, 0.03):  # as where pages happen to lie makes them
        incumbent = np.exp(random.normal(0, 0.01, 16))
        found.append(Launch(tuple(incumbent), tuple(incumbent * np.exp(offset + random.normal(0, 0.01, 16)))))
    one = calibrate_floor(found, launches=1, pairs=32)
    eight = calibrate_floor(found, launches=8, pairs=32)
    assert 0.04 < one < 0.08
    assert 0.015 < eight < 0.8 * one


def test_one_launch_that_is_far_off_raises_the_floor_as_little_as_it_moves_a_judgement() -> None:
    random = np.random.default_rng(3)
    offsets = (0.002, -0.09, 0.001, -0.003)
    found = []
    for offset in offsets:
        incumbent = np.exp(random.normal(0, 0.005, 24))
        found.append(Launch(tuple(incumbent), tuple(incumbent * np.exp(offset + random.normal(0, 0.005, 24)))))
    assert calibrate_floor(found, launches=8, pairs=32) < 0.01
    assert calibrate_floor(found, launches=1, pairs=32) > 0.05  # a single launch may be that one


@pytest.mark.parametrize(
    ("high", "floor", "outcome"),
    [(0.97, 0.02, "slower"), (0.985, 0.02, "inconclusive"), (0.70, 0.10, "slower"), (0.95, 0.10, "inconclusive")],
)
def test_slower_is_what_the_floor_does_not_explain(high: float, floor: float, outcome: str) -> None:
    assert decide(Interval(high - 0.02, high - 0.04, high, 60, 5), floor)[0] == outcome
