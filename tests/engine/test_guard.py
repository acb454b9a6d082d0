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
    with pytest.raises(ValueError, match="max_loops"):
        Guard(max_loops=0)


def watch(text: str, **limits: int) -> tuple[int, str] | None:
    """Return (how many tokens were said, why) when the guard trips on `text`, each letter a token."""
    guard = Guard(text_of=chr, **limits)  # type: ignore[arg-type]
    for said, letter in enumerate(text, 1):
        if (kind := guard.observe("a", ord(letter))) is not None:
            return said, kind
    return None


def test_a_planted_collapse_is_seen_within_eight_tokens_and_a_rule_of_forty_is_none() -> None:
    said = "The answer is "
    assert watch(said + "s" * 50, max_repeats=7) == (len(said) + 8, "repeat")
    assert watch(said + "!" * 50, max_repeats=7) == (len(said) + 8, "repeat"), "what NaN reads as in many vocabularies"
    for rule in "-=_*#~.|+ \n0\u2500":
        assert watch(said + rule * 40, max_repeats=7) is None, rule
    assert watch(said + "-" * 500, max_repeats=7) == (len(said) + 113, "repeat"), (
        "sixteen times as patient, not for ever"
    )


@pytest.mark.parametrize(("loop", "tokens"), [("ab", 48), ("abcdef", 48), ("abcdefgh", 64), ("x" * 3 + "y", 48)])
def test_tokens_that_come_round_and_round_are_a_loop(loop: str, tokens: int) -> None:
    assert watch("once " + loop * 100) == (5 + len(loop) + tokens, "loop")
    assert watch("once " + loop * (1 + tokens // len(loop) - 1) + " upon a time") is None


def test_tables_and_lists_are_no_loops() -> None:
    row = "|---|---|---|---|\n"
    assert watch(row * 8) is None
    assert watch("".join(f"{n}. item {n * n}\n" for n in range(60))) is None
    assert watch("0, 1, 0, 1, " * 20) is None
    assert watch("0, 1, " * 400) is not None


def test_a_loop_longer_than_what_is_looked_for_is_left_alone() -> None:
    assert watch("the quick brown fox jumps over the dog. " * 20) is None


def test_each_kind_counts_once_for_a_generation() -> None:
    guard = Guard(max_repeats=3)
    seen = [guard.observe("a", token) for token in [1] * 9 + [2, 3] * 60 + [1] * 9]
    assert [kind for kind in seen if kind] == ["repeat", "loop"] and guard.trips == {"repeat": 1, "loop": 1}
