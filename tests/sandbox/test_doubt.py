"""A failure that may be chance is drawn again; one that cannot be is not."""

from __future__ import annotations

import pytest

from kernelwright.sandbox.judge import is_doubtful, weigh
from kernelwright.sandbox.verdict import Correctness, Evaluation


def evaluation(gate: str, ratio: float = 1.0) -> Evaluation:
    extra = {
        "y": {"gate": gate, "max_ratio": ratio, "rms_ratio": 1.0},
        "z": {"gate": "", "max_ratio": 9e9, "rms_ratio": 1},
    }
    return Evaluation(
        workload="case",
        status="INCORRECT_NUMERICAL" if gate else "PASSED",
        correctness=Correctness(max_relative_error=0.1, max_absolute_error=0.1, extra=extra),
    )


PASSED, NEAR = evaluation(""), evaluation("error against the incumbent", 3.0)
FAR, WRONG = evaluation("error against the incumbent", 40.0), evaluation("non-finite values")


@pytest.mark.parametrize(("one", "doubtful"), [(PASSED, False), (NEAR, True), (FAR, False), (WRONG, False)])
def test_only_errors_near_the_incumbents_own_are_doubtful(one: Evaluation, doubtful: bool) -> None:
    assert is_doubtful(one) is doubtful
    assert not is_doubtful(Evaluation(workload="case", status="RUNTIME_ERROR"))


def test_one_bad_draw_in_five_is_forgiven() -> None:
    verdict, reason = weigh([NEAR, PASSED, PASSED, PASSED, PASSED], "wrong")
    assert (verdict.status, reason) == ("PASSED", "")


def test_a_candidate_that_is_mostly_worse_fails() -> None:
    verdict, reason = weigh([NEAR, PASSED, NEAR, NEAR, PASSED], "wrong")
    assert (verdict, reason) == (NEAR, "wrong")


@pytest.mark.parametrize("worst", [FAR, WRONG])
def test_one_draw_that_cannot_be_chance_fails_whatever_the_others_say(worst: Evaluation) -> None:
    verdict, reason = weigh([NEAR, PASSED, worst, PASSED, PASSED], "wrong")
    assert (verdict, reason) == (worst, "wrong")
