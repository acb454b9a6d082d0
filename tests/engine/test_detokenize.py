from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.engine.detokenize import Detokenizer, StopSearch

SPECIAL = 256


def decode(ids: Sequence[int]) -> str:
    return bytes(id for id in ids if id != SPECIAL).decode("utf-8", "replace")


@given(st.text())
def test_bytes_come_out_as_the_text_they_are(text: str) -> None:
    detokenizer = Detokenizer(decode)
    shown = "".join(detokenizer.feed(byte) for byte in text.encode())
    assert shown + detokenizer.flush() == text


def test_half_a_character_is_held_back() -> None:
    detokenizer = Detokenizer(decode)
    first, second = "é".encode()
    assert detokenizer.feed(first) == ""
    assert detokenizer.feed(second) == "é"


def test_a_character_that_never_ends_is_shown_as_broken_at_the_end() -> None:
    detokenizer = Detokenizer(decode)
    assert detokenizer.feed("é".encode()[0]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_endless_nonsense_does_not_stay_hidden() -> None:
    detokenizer = Detokenizer(decode)
    shown = "".join(detokenizer.feed(0xFF) for _ in range(64))
    assert shown.count("\ufffd") >= 48


def test_tokens_without_text_do_not_lengthen_the_window() -> None:
    longest = 0

    def watched(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    detokenizer = Detokenizer(watched)
    assert "".join(detokenizer.feed(id) for id in [ord("a"), *[SPECIAL] * 500, ord("b")]) == "ab"
    assert longest <= 4


def feed(stops: tuple[str, ...], chunks: Sequence[str]) -> tuple[str, str | None]:
    search = StopSearch(stops)
    shown = "".join(search.feed(chunk) for chunk in chunks)
    return (shown if search.found else shown + search.flush()), search.found


@pytest.mark.parametrize(
    ("stops", "chunks", "shown", "found"),
    [
        ((), ["one ", "two"], "one two", None),
        (("two",), ["one ", "two", " three"], "one ", "two"),
        (("two",), ["one t", "w", "o three"], "one ", "two"),
        (("two",), ["one t", "w", "ice"], "one twice", None),
        (("b", "ab"), ["xab"], "x", "ab"),
        (("\n\n",), ["a\n", "b\n"], "a\nb\n", None),
    ],
)
def test_stop_strings(stops: tuple[str, ...], chunks: list[str], shown: str, found: str | None) -> None:
    assert feed(stops, chunks) == (shown, found)


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_letter_by_letter_finds_what_the_whole_text_holds(text: str, stops: list[str]) -> None:
    shown, found = feed(tuple(stops), list(text))
    assert (found is not None) == any(stop in text for stop in stops)
    assert text.startswith(shown)
    if found is None:
        assert shown == text
    else:
        assert not any(stop in shown for stop in stops)
