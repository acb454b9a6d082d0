"""Numbers read as a person would write them, and every event has words."""

from __future__ import annotations

import pytest

from kernelwright.agent import events as e
from kernelwright.tui import words


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (words.clock(0), "0:00"),
        (words.clock(372.9), "6:12"),
        (words.clock(3723), "1:02:03"),
        (words.times(3.366), "3.37×"),
        (words.times(None), "–"),
        (words.span(3.31, 3.418), "[3.31, 3.42]"),
        (words.span(None, 1.0), ""),
        (words.shorten("q4_1_linear", 8), "q4_1_li…"),
        (words.shorten("q4_1", 8), "q4_1"),
        (words.percent(0.1234), "12.3 %"),
        (words.percent(0.99999, 3), "99.999 %"),
        (words.tiny(3.14e-9), "3.1e-9"),
        (words.tiny(0.0), "0"),
        (words.tiny(-1.2e-6), "-1.2e-6"),
        (words.duration(412), "412 ns"),
        (words.duration(838_000), "838 µs"),
        (words.duration(1.5e6), "1.5 ms"),
        (words.duration(2e9), "2 s"),
        (words.size(96_400_000), "96.4 MB"),
        (words.size(12), "12 B"),
    ],
)
def test_numbers(said: str, meant: str) -> None:
    assert said == meant


def test_sentences() -> None:
    judged = e.CandidateJudged(
        definition="d",
        candidate="abcdef0123",
        phase="confirm",
        outcome="faster",
        reason="",
        ratio=2.0,
        low=1.9,
        high=2.1,
    )
    assert words.sentence(judged) == "d  abcdef01 confirm: faster 2.00× [1.90, 2.10]"
    assert words.sentence(e.GateFinished(passed=False, reason="KLD")) == "refused: KLD"
    assert words.sentence(e.PhaseStarted(phase="gate", budget_s=90)) == "gate, 1:30 to spend"
    assert words.sentence(e.SessionEnded(status="done")) == "done"
