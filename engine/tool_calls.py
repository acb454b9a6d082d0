"""Tool calls out of a model's text, piece by piece.

Read are Hermes' `<tool_call>{"name": …, "arguments": {…}}</tool_call>` anywhere in the text, and answers that are
nothing but such an object, or a row of them; Llama 3 says `parameters` for `arguments`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Literal

from kernelwright.engine.call_object import CallObject, NoCall, skip
from kernelwright.engine.detokenize import overlap

OPENS, CLOSES = "<tool_call>", "</tool_call>"
_BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Call:
    """A call, or what a piece of text adds to one: `id` and `name` come with its first part alone."""

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What a piece of text turned out to hold."""

    content: str
    calls: tuple[Call, ...]


@dataclass(slots=True)
class CallReader:
    """Splits a stream of text into words and calls; blanks around calls are neither.

    `names` are the functions that a bare object may call; with `bare` False every bare object is words. Calls beyond
    `most` are dropped, with all that follows.
    """

    names: frozenset[str]
    most: int
    bare: bool = True
    num_calls: int = 0
    _state: Literal["start", "words", "tag", "object", "between", "full"] = "start"
    _text: str = ""
    """What has come and is not understood yet."""
    _lead: str = ""
    """What stood before the object that is being read; words again, if that is no call."""
    _object: CallObject = field(default_factory=CallObject)
    _is_told: bool = False
    """Whether the call that is being read has been told of."""
    _blanks: str = ""
    _words: list[str] = field(default_factory=list)
    _calls: list[Call] = field(default_factory=list)

    def feed(self, text: str) -> Heard:
        """Return what can be told now that `text` has come."""
        return self._advance(text, False)

    def flush(self) -> Heard:
        """Return what was held back; the text is complete."""
        return self._advance("", True)

    def _advance(self, text: str, is_last: bool) -> Heard:
        self._text += text
        self._words, self._calls = [], []
        steps = {
            "start": self._start, "words": self._read_words, "tag": self._tag, "object": self._read_object,
            "between": self._between, "full": self._full,
        }  # fmt: skip
        while steps[self._state](is_last):
            pass
        if is_last and not self.num_calls:
            self._words.append(self._blanks)
        return Heard("".join(self._words), tuple(self._calls))

    def _start(self, is_last: bool) -> bool:
        """The beginning, and the place behind a bare object: is there a bare object?"""
        at = skip(self._text, 0, _BLANKS + "[" if self.bare else "")
        if at == len(self._text) and not is_last:
            return False
        if self.bare and self._text[at : at + 1] == "{":
            return self._begin(self._text[:at], at)
        self._state = "words"
        return True

    def _read_words(self, is_last: bool) -> bool:
        at = self._text.find(OPENS)
        if at >= 0:
            self._say(self._text[:at])
            self._text = self._text[at + len(OPENS) :]
            self._state = "tag"
            return True
        keep = 0 if is_last else overlap(self._text, OPENS)
        self._say(self._text[: len(self._text) - keep])
        self._text = self._text[len(self._text) - keep :]
        return False

    def _tag(self, is_last: bool) -> bool:
        at = skip(self._text, 0, _BLANKS)
        if at == len(self._text) and not is_last:
            return False
        if self._text[at : at + 1] == "{":
            return self._begin(OPENS + self._text[:at], at)
        self._say(OPENS)
        self._state = "words"
        return True

    def _begin(self, lead: str, at: int) -> bool:
        self._lead, self._text = lead, self._text[at:]
        self._object, self._is_told = CallObject(), False
        self._state = "object" if self.num_calls < self.most else "full"
        return True

    def _read_object(self, is_last: bool) -> bool:
        fresh, self._text = self._text, ""
        try:
            grown = self._object.feed(fresh)
            self._tell(grown)
        except NoCall:
            return self._give_back()
        if self._object.rest is not None:
            self._text, self._state = self._object.rest, "between"
            return True
        return is_last and not self._is_told and self._give_back()

    def _tell(self, grown: str) -> None:
        """Tell of the call as far as it is sure to be one. Raises NoCall when a bare object names nothing offered."""
        called = self._object
        is_bare = not self._lead.startswith(OPENS)
        if is_bare and called.name is not None and called.name not in self.names:
            raise NoCall
        if is_bare and called.rest is not None and not called.has_arguments:
            raise NoCall
        if not self._is_told and called.name is not None and (called.has_arguments or not is_bare):
            self._is_told, self._blanks = True, ""
            self._calls.append(Call(self.num_calls, grown, f"call_{uuid.uuid4().hex[:24]}", called.name))
            self.num_calls += 1
        elif grown:
            self._calls.append(Call(self.num_calls - 1, grown))

    def _give_back(self) -> bool:
        """What was read is no call after all: it is words, unless a part of it has been told of as a call."""
        self._state = "words"
        if not self._is_told:
            self._say(self._lead)
            self._text = self._object.text
        return True

    def _between(self, is_last: bool) -> bool:
        """Behind a call: its closing tag, blanks, and what stands between bare objects."""
        is_bare = not self._lead.startswith(OPENS)
        self._text = self._text[skip(self._text, 0, _BLANKS + ";,]" if is_bare else _BLANKS) :]
        if self._text.startswith(CLOSES):
            self._text = self._text[len(CLOSES) :]
            return True
        if not is_last and CLOSES.startswith(self._text):
            return False
        self._state = "start" if is_bare else "words"
        return bool(self._text)

    def _full(self, is_last: bool) -> bool:
        self._text = ""
        return False

    def _say(self, words: str) -> None:
        """Show words; blanks at their end wait until it is known that no call follows."""
        whole = self._blanks + words
        shown = whole.rstrip(_BLANKS)
        self._blanks = whole[len(shown) :]
        self._words.append(shown)
