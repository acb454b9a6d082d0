"""What a selftest's report holds against the judge, one fault at a time."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.sandbox.selftest_report import Planted, Played, SelfAgainstSelf, SelftestReport, SelfTrial


def played(kind: str, outcome: str, **more: Any) -> Played:
    plain = {
        "name": "one", "kind": kind, "problem": "norm", "family": "", "text": "", "reason": "r", "outcome": outcome,
        "phase": "search", "caught_by": "", "ratio": None, "low": None, "faster": False, "seconds": 1.0,
    }  # fmt: skip
    return Played.model_validate({**plain, **more})


def report(**changes: Any) -> SelftestReport:
    aa = SelfAgainstSelf(search_trials=3, search_faster=0, confirm_trials=0, confirm_faster=0)
    good = {
        "full": False, "harness": "h", "host": "h", "finished": 0.0, "seconds": 1.0, "isolation": "L3", "aa": aa,
        "played": (played("exploit", "incorrect"), played("honest", "faster", faster=True)), "planted": (),
    }  # fmt: skip
    return SelftestReport.model_validate({**good, **changes})


def test_a_good_run_passes() -> None:
    assert report().failures == () and report().passed


FAULTS = {
    "accepted": {"played": (played("exploit", "faster", phase="confirm"),)},
    "was called suspect": {"played": (played("honest", "suspect"),)},
    "faster than itself": {
        "aa": SelfAgainstSelf(search_trials=42, search_faster=1, confirm_trials=0, confirm_faster=0)
    },
    "slower was found faster": {"planted": (Planted(percent=-10.0, trials=1, faster=1, slower=0),)},
    "isolation L1": {"isolation": "L1"},
}


@pytest.mark.parametrize("word", FAULTS)
def test_each_fault_fails_it(word: str) -> None:
    failed = report(**FAULTS[word])
    assert not failed.passed and len(failed.failures) == 1 and word in failed.failures[0], failed.failures


def test_a_false_win_is_told_with_its_numbers() -> None:
    trial = SelfTrial(problem="norm", phase="confirm", outcome="faster", ratio=1.07, low=1.04, launches=(1.05, 1.09))
    aa = SelfAgainstSelf(trials=(trial,), search_trials=0, search_faster=0, confirm_trials=6, confirm_faster=1)
    (failure,) = report(aa=aa).failures
    assert "norm in confirm: 1.070x, from 1.040x on, launches 1.050 1.090" in failure


def test_a_run_without_trials_says_nothing_of_the_level() -> None:
    none = SelfAgainstSelf(search_trials=0, search_faster=0, confirm_trials=0, confirm_faster=0)
    assert report(aa=none, isolation="L0").passed


def test_the_counts_are_those_of_the_json() -> None:
    counts = report(planted=(Planted(percent=3.0, trials=4, faster=3, slower=0),)).counts()
    assert counts["exploits"] == {"total": 1, "accepted": 0}
    assert counts["honest"]["total"] == 1 and counts["honest"]["rejected"] == 0 and counts["honest"]["faster"] == 1  # type: ignore[index]
    assert counts["aa"]["total"] == 3 and counts["planted"][0]["faster"] == 3  # type: ignore[index]
