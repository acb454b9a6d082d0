from __future__ import annotations

import pytest

from kernelwright.engine.guard import Guard


def test_a_token_repeated_too_often_is_a_collapse_counted_once() -> None:
    guard = Guard(max_repeats=3)
    assert [guard.observe("a", 7) for _ in range(6)] == [None, None, None, "repeat", None, None]
    assert guard.trips == {"repeat": 1}


def test_other_tokens_between_start_the_count_anew() -> None:
    guard = Guard(max_repeats=2)
    assert [guard.observe("a", token) for token in (1, 1, 2, 1, 1, 2)] == [None] * 6


def test_requests_are_watched_apart() -> None:
    guard = Guard(max_repeats=2)
    assert [guard.observe(request, 5) for request in "abab"] == [None] * 4
    assert guard.observe("a", 5) == "repeat"


def test_logits_that_are_not_finite_are_a_collapse() -> None:
    guard = Guard()
    assert guard.observe("a", None) == "not_finite"
    assert guard.trips == {"not_finite": 1}


def test_a_request_that_ended_is_forgotten() -> None:
    guard = Guard(max_repeats=2)
    for _ in range(2):
        guard.observe("a", 5)
    guard.forget("a")
    assert guard.observe("a", 5) is None


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_repeats"):
        Guard(max_repeats=0)
