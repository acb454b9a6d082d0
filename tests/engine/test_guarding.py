"""What leaves the engine when an answer may be collapsing: nothing that is taken back, nothing held for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kernelwright.engine import wire
from kernelwright.engine.guard import Guard
from kernelwright.engine.guarding import Guarding


@dataclass
class Story:
    """An answer of letters through the guard. `again` is what the incumbents say, None where nothing can be retried."""

    says: str
    again: str | None = None
    last: str | None = None
    """Finish of the last letter."""
    sent: str = ""
    finish: str | None = None
    kept: list[int] = field(default_factory=list)
    aborted: bool = False
    late: int = 0
    """Most letters that were held at once."""
    told: list[str] = field(default_factory=list)
    guard: Guard = field(default_factory=lambda: Guard(action="retry", text_of=chr))

    def play(self) -> Story:
        said = list(self.says)
        at = 0

        def retry(request: str, keep: int) -> list[int] | None:
            nonlocal said, at
            if self.again is None:
                return None
            self.kept.append(keep)
            said, at = list(self.says[:keep] + self.again), keep
            return [ord(letter) for letter in said[:keep]]

        def abort(request: str) -> None:
            self.aborted = True

        guarding = Guarding(self.guard, retry, abort, self.told.append)
        while at < len(said) and self.finish is None:
            letter = said[at]
            at += 1
            finish = self.last if at == len(said) else None
            sent = guarding.pass_on(wire.Token("a", ord(letter), finish))
            for token in sent:
                self.sent += chr(token.token or 0)
                self.finish = token.finish
            self.late = max(self.late, at - len(self.sent))
        guarding.forget("a")
        assert not guarding._answers
        return self


def test_an_answer_of_no_suspicion_is_one_token_late_and_whole() -> None:
    story = Story("the quick brown fox jumps", last="stop").play()
    assert (story.sent, story.finish, story.late) == ("the quick brown fox jumps", "stop", 1)


def test_a_short_run_is_held_until_it_is_none() -> None:
    story = Story("ha aaaaa bla bla bla x", last="length").play()
    assert story.sent == "ha aaaaa bla bla bla x" and 4 < story.late < 12 and not story.told


def test_rules_and_blanks_are_not_held() -> None:
    assert Story("a\n" + "-" * 60 + "|---|---|---|---|\n" * 3, last="stop").play().late == 1


def test_a_collapse_is_cut_to_what_was_sent_and_the_client_sees_one_text() -> None:
    story = Story("one two thrrrrrrrrrrrrrrr", again="ree four", last="stop").play()
    assert story.sent == "one two three four" and story.finish == "stop" and story.kept == [10]
    assert story.guard.trips == {"repeat": 1} and story.guard.retries == {"mended": 1}
    assert "collapsed (repeat) after 18 tokens" in story.told[0] and "did not collapse" in story.told[1]


def test_a_loop_is_cut_where_it_was_suspected() -> None:
    story = Story("once " + "abcdef" * 30, again=" upon a time there was a token", last="stop").play()
    assert story.sent == "once abcdefabcdef upon a time there was a token", "the first round, and most of the next"
    assert story.guard.trips == {"loop": 1} and story.guard.retries == {"mended": 1}


def test_it_is_retried_once() -> None:
    story = Story("one two thrrrrrrrrrrrrrrr", again="ree aaaaaaaaaaaaa").play()
    assert story.sent == "one two three aaaaaaaa" and story.finish == "collapse" and story.aborted
    assert story.guard.retries == {"mended": 1}, "it got past the place; what came later is another matter"
    story = Story("one two thrrrrrrrrrrrrrrr", again="rrrrrrrrrrrrr").play()
    assert story.sent == "one two thrrrrrrrr" and story.finish == "collapse"
    assert story.guard.retries == {"collapsed": 1} and len(story.kept) == 1
    assert not any("did not collapse" in text for text in story.told)


def test_what_cannot_be_retried_ends_as_with_stop() -> None:
    story = Story("one two thrrrrrrrrrrrrrrr").play()
    assert story.sent == "one two thrrrrrrrr" and story.finish == "collapse" and story.aborted
    assert not story.guard.retries


@pytest.mark.parametrize(("again", "last", "outcome"), [("xy", "error", "failed"), ("xy", "stop", "mended")])
def test_an_answer_that_ends_before_the_place_is_counted_by_its_end(again: str, last: str, outcome: str) -> None:
    assert Story("one two thrrrrrrrrr", again=again, last=last).play().guard.retries == {outcome: 1}


def test_one_that_leaves_before_the_place_is_no_evidence() -> None:
    assert not Story("one two thrrrrrrrrr", again="xy").play().guard.retries


@pytest.mark.parametrize("action", ["observe", "stop"])
def test_the_other_actions_hold_nothing(action: str) -> None:
    story = Story("one aaa bcd bcd bcd", last="stop", guard=Guard(action=action, text_of=chr))  # type: ignore[arg-type]
    assert story.play().late == 0 and story.sent == story.says


def test_an_answer_whose_logits_are_not_finite_ends_with_what_was_held() -> None:
    guarding = Guarding(Guard(action="retry"), lambda request, keep: None, lambda request: None)
    assert guarding.pass_on(wire.Token("a", 5)) == []
    ended = guarding.pass_on(wire.Token("a", None, "error"))
    assert [(token.token, token.finish) for token in ended] == [(5, None), (None, "error")]
