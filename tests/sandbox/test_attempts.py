"""Three confirms of a problem for each author and week, and 5 % between them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelwright.sandbox.attempts import ALPHAS, WEEK_S, Attempt, Attempts


def test_alpha_is_spent_and_then_there_is_none() -> None:
    attempts = Attempts()
    granted = [attempts.begin("problem", "author") for _ in range(4)]
    assert granted == [Attempt(1, 0.025), Attempt(2, 0.0125), Attempt(3, 0.0125), None]
    assert sum(ALPHAS) == pytest.approx(0.05)


def test_each_author_and_each_problem_has_its_own() -> None:
    attempts = Attempts()
    for _ in range(3):
        attempts.begin("problem", "author")
    assert attempts.begin("problem", "another") == Attempt(1, 0.025)
    assert attempts.begin("another", "author") == Attempt(1, 0.025)


def test_a_week_later_there_are_three_again(tmp_path: Path) -> None:
    clock = [1e9]
    attempts = Attempts(tmp_path / "attempts.json", now=lambda: clock[0])
    assert [attempts.begin("p", "a") is None for _ in range(4)] == [False, False, False, True]
    clock[0] += WEEK_S + 1
    assert attempts.begin("p", "a") == Attempt(1, 0.025)


def test_two_that_begin_at_once_are_both_counted(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "attempts.json"
    with ThreadPoolExecutor(6) as pool:  # each opens the lock file for itself, as processes do
        granted = list(pool.map(_begin, [path] * 6))
    assert sorted(granted) == [0, 0, 0, 1, 2, 3]


def _begin(path: Path) -> int:
    attempt = Attempts(path).begin("p", "a")
    return attempt.number if attempt else 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"p/a": 3}', '{"p/a": ["x"]}'])
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    path = tmp_path / "attempts.json"
    path.write_text(content)
    assert Attempts(path).begin("p", "a") == Attempt(1, 0.025)
