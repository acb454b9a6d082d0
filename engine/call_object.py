"""CallObject: one `{"name": …, "arguments": {…}}` read while it arrives.

Arguments are handed on as they are written: whether they are valid is the model's doing, unless a grammar held it to
that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_ARGUMENTS = ("arguments", "parameters")
_FIRST = ("name", "id", "type", *_ARGUMENTS)
"""What a call may begin with; an object that begins otherwise need not be held back to its end."""
_BLANKS = " \t\r\n"
_decoder = json.JSONDecoder(strict=False)


class NoCall(ValueError):
    """The text is not a call."""


@dataclass(slots=True)
class CallObject:
    text: str = ""
    """All that has come; begins with the brace."""
    name: str | None = None
    has_arguments: bool = False
    rest: str | None = None
    """What follows the object, once it has ended."""
    _at: int = 1
    """Up to here the text is understood."""
    _value: _Braces | None = None
    _held: str = ""

    def feed(self, piece: str) -> str:
        """Return what `piece` adds to the arguments, nothing before the name is known. Raises NoCall if it is none."""
        self.text += piece
        while self.rest is None and (self._grow() if self._value is not None else self._read_member()):
            pass
        if self.name is None:
            return ""
        if self.rest is not None and not self._held and not self.has_arguments:
            return "{}"
        grown, self._held = self._held, ""
        return grown

    def _grow(self) -> bool:
        assert self._value is not None
        taken = self._value.take(self.text, self._at)
        self._at += len(taken)
        self._held += taken
        if self._value.has_ended:
            self._value = None
        return self._value is None

    def _read_member(self) -> bool:
        """Understand the next `"key": value`, or the object's end; False where that has to wait for more text."""
        at = skip(self.text, self._at, _BLANKS + ",")
        if self.text[at : at + 1] == "}":
            if self.name is None:
                raise NoCall
            self.rest = self.text[at + 1 :]
            return False
        if self.text[at : at + 1] not in ("", '"'):
            raise NoCall
        key, at = _value_at(self.text, at)
        at = skip(self.text, at, _BLANKS)
        if key is None or at == len(self.text):
            return False
        if self.text[at] != ":" or (self.name is None and key not in _FIRST):
            raise NoCall
        at = skip(self.text, at + 1, _BLANKS)
        if key in _ARGUMENTS and self.text[at : at + 1] == "{":
            self._value, self._at, self.has_arguments = _Braces(), at, True
            return True
        value, end = _value_at(self.text, at)
        # a number may go on
        if end == at or (end == len(self.text) and isinstance(value, int | float) and not isinstance(value, bool)):
            return False
        self._note(key, value)
        self._at = end
        return True

    def _note(self, key: str, value: Any) -> None:
        if key == "name":
            if not isinstance(value, str) or not value:
                raise NoCall
            self.name = value
        elif key in _ARGUMENTS:
            # some write the object as a string, as it stands in OpenAI's own answers
            self._held += value if isinstance(value, str) else "{}" if value is None else json.dumps(value)
            self.has_arguments = True


@dataclass(slots=True)
class _Braces:
    """Finds the end of a JSON object by its braces and strings alone."""

    depth: int = 0
    in_string: bool = False
    escapes: bool = False
    has_ended: bool = False

    def take(self, text: str, start: int) -> str:
        """Return the part of `text` from `start` on that belongs to the object."""
        for at in range(start, len(text)):
            self._note(text[at])
            if self.has_ended:
                return text[start : at + 1]
        return text[start:]

    def _note(self, character: str) -> None:
        if self.in_string:
            self.in_string = self.escapes or character != '"'
            self.escapes = character == "\\" and not self.escapes
        elif character == '"':
            self.in_string = True
        elif character in "{[":
            self.depth += 1
        elif character in "}]":
            self.depth -= 1
            self.has_ended = self.depth == 0


def skip(text: str, at: int, characters: str) -> int:
    """Return the first place from `at` on that holds none of `characters`."""
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _value_at(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at `at` and where it ends; (None, at) when it is not whole."""
    try:
        value, end = _decoder.raw_decode(text, at)
    except ValueError:
        return None, at
    return value, end
