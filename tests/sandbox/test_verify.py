"""Every check of the judge fires on a candidate made for it, and each control is what stops its cheat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import WrongUse
from kernelwright.sandbox.attempts import ALPHAS, Attempts
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.verify import NARROW_LAUNCHES, NARROW_PAIRS, Bench
from tests.sandbox.posed import load_evil, open_bench, pose, require_cage

pytestmark = [pytest.mark.cage, pytest.mark.alone]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_cage()
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def bench(cache: Path) -> Iterator[Bench]:
    with open_bench(pose(), cache) as opened:
        yield opened


CHEATS = {
    "wrong.py": ("incorrect", "wrong"),
    "wrong_in_one_row.py": ("incorrect", "wrong"),
    "cached_by_pointer.py": ("", ""),
    "nan.py": ("incorrect", "NaN"),
    "less_precise.py": ("incorrect", "less precise"),
    "adds_to_output.cpp": ("incorrect", "unwritten"),
    "leaves_a_gap.cpp": ("incorrect", "unwritten"),
    "wrong_later.py": ("invalid", "while it is timed"),
    "returns_early.cpp": ("", ""),
    "writes_outside.cpp": ("invalid", "outside its outputs"),
    "writes_inputs.cpp": ("invalid", "crashed"),
    "crashing.cpp": ("invalid", "crashed"),
    "hanging.py": ("invalid", "in time"),
    "wrong_shape.py": ("invalid", "crashed"),
    "busy_threads.py": ("invalid", ""),
    "forking.py": ("invalid", ""),
    "disguised.py": ("invalid", ""),
    "wrong_abi.cpp": ("invalid", "loaded"),
    "does_not_compile.cpp": ("invalid", "compile"),
    "slow.py": ("slower", "slower"),
    "cached_by_content.py": ("slower", "slower"),
}
"""Candidate → outcome and a word of its reason; '' where timing decides which of several checks fires first."""


@pytest.mark.parametrize("name", CHEATS)
def test_a_bad_candidate_gets_the_outcome_it_deserves(bench: Bench, name: str) -> None:
    verdict = bench.search(load_evil(name, bench.problem))
    outcome, word = CHEATS[name]
    assert verdict.outcome in ({outcome} if outcome else {"incorrect", "invalid"}), verdict.reason
    assert word in verdict.reason
    assert not verdict.accepted


@pytest.mark.parametrize("name", ["honest.cpp", "honest.py"])
def test_an_honest_candidate_is_found_faster(bench: Bench, name: str) -> None:
    verdict = bench.search(load_evil(name, bench.problem))
    assert verdict.outcome == "faster", (verdict.reason, verdict.comparison)
    assert verdict.isolation == "L3"
    assert verdict.comparison is not None and verdict.comparison.low > 1
    assert not verdict.accepted, "search alone never allows a patch"


def test_confirm_accepts_an_honest_candidate(bench: Bench) -> None:
    verdict = bench.confirm(load_evil("honest.cpp", bench.problem))
    assert verdict.outcome == "faster", (verdict.reason, verdict.comparison)
    assert verdict.accepted
    assert verdict.comparison is not None and verdict.comparison.launches >= 5
    assert verdict.binary is not None and verdict.key is not None and verdict.weights_key is not None
    assert len(verdict.key.split(",")) == verdict.comparison.launches == len(verdict.launches)
    assert verdict.comparison.confidence == 0.975, "the first confirm may err with 2.5 %"
    rules = [d.rule for d in verdict.decisions]
    assert "drift of the incumbent" in rules and verdict.decisions[-1].passed
    assert verdict.environment["torch"] and len(verdict.harness) == 64


def test_confirm_rejects_a_race(bench: Bench) -> None:
    verdict = bench.confirm(load_evil("racy.cpp", bench.problem))
    assert verdict.outcome in ("incorrect", "invalid")


OFF = {
    "cached_by_content.py": "fresh_inputs",
    "adds_to_output.cpp": "poison",
    "wrong_later.py": "judge_timed",
    "less_precise.py": "relative_gate",
    "returns_early.cpp": "read_twice",
    "writes_inputs.cpp": "protect_inputs",
    "wrong_in_one_row.py": "check_every_row",
    "busy_inside.cpp": "watch_cpu",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if i % 2 else pytest.mark.slow) for i, name in enumerate(OFF)],
)
def test_with_its_control_off_the_cheat_gets_through(cache: Path, name: str) -> None:
    controls = Controls(**{OFF[name]: False})
    with open_bench(pose(), cache, controls) as bench:
        verdict = bench.search(load_evil(name, bench.problem), screened=False)
    assert verdict.outcome in ("faster", "inconclusive"), verdict.reason
    assert all(e.status == "PASSED" for e in verdict.evaluations)
    assert verdict.isolation == "L0", "a bench with a control off must not look like one that holds"


@pytest.mark.slow
def test_a_confirm_with_a_control_off_is_never_accepted(cache: Path) -> None:
    with open_bench(pose(), cache, Controls(repeat_races=False)) as bench:
        verdict = bench.confirm(load_evil("honest.cpp", bench.problem))
    assert verdict.outcome == "faster" and not verdict.accepted and verdict.isolation == "L0"


def test_the_fourth_confirm_of_an_author_is_not_granted(bench: Bench, tmp_path: Path) -> None:
    spent = Attempts(tmp_path / "attempts.json")
    for _ in ALPHAS:
        assert spent.begin(digest_of(bench.problem), "tired")
    with open_bench(pose(), tmp_path) as other:
        other._attempts, other._lineage = Attempts(tmp_path / "attempts.json"), "tired"
        verdict = other.confirm(load_evil("honest.cpp", other.problem))
        assert (verdict.outcome, verdict.comparison) == ("inconclusive", None) and "confirms" in verdict.reason
        other._lineage = "fresh"
        assert other.confirm(load_evil("wrong.py", other.problem)).outcome == "incorrect"


def test_a_small_win_is_decided_by_launches_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.sandbox.verify.is_narrow", lambda launches: True)
    verdict = bench.search(load_evil("honest.cpp", bench.problem))
    assert verdict.comparison is not None and verdict.comparison.launches == NARROW_LAUNCHES
    assert verdict.comparison.n == NARROW_LAUNCHES * NARROW_PAIRS


@pytest.mark.parametrize("narrow", [False, True])
def test_a_loss_in_one_launch_is_looked_at_again(bench: Bench, monkeypatch: pytest.MonkeyPatch, narrow: bool) -> None:
    asked = iter([narrow])
    monkeypatch.setattr("kernelwright.sandbox.verify.is_doubtful", lambda launches: True)
    monkeypatch.setattr("kernelwright.sandbox.verify.is_narrow", lambda launches: next(asked))
    verdict = bench.search(load_evil("honest.cpp", bench.problem))
    assert verdict.comparison is not None and verdict.comparison.launches == (NARROW_LAUNCHES if narrow else 2)


@pytest.mark.slow
@pytest.mark.parametrize("trials", [50])
def test_the_incumbent_is_never_faster_than_itself(cache: Path, trials: int) -> None:
    with open_bench(pose(slow_incumbent=False), cache) as bench:
        bench._floor = None
        bench.calibrate()
        outcomes = [bench.search(bench.problem.incumbent).outcome for _ in range(trials)]
    assert "faster" not in outcomes


def test_a_candidate_for_another_definition_is_refused(bench: Bench) -> None:
    other = bench.problem.incumbent.model_copy(update={"definition": "other"})
    with pytest.raises(WrongUse):
        bench.search(other)


def test_a_range_that_misses_the_timed_shape_is_invalid(bench: Bench) -> None:
    honest = load_evil("honest.cpp", bench.problem)
    narrow = type(honest).model_validate({**honest.model_dump(), "ranges": {"T": {"low": 1, "high": 1}}})
    assert bench.search(narrow).outcome == "invalid"


TASKS = """
#include "linear.h"

LINEAR_RUN {
#pragma omp parallel
#pragma omp single
#pragma omp task
  l.compute();
}
"""


def test_what_the_race_detector_cannot_run_is_not_accepted(bench: Bench) -> None:
    honest = load_evil("honest.cpp", bench.problem)
    source = honest.sources[0].model_copy(update={"content": TASKS})
    verdict = bench.confirm(honest.model_copy(update={"sources": (source, *honest.sources[1:])}))
    assert verdict.outcome == "inconclusive" and "race detector" in verdict.reason, verdict
    assert any(d.rule == "race and memory detectors" and not d.passed for d in verdict.decisions)
