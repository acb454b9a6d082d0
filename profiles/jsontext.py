"""JSON as profilers write it: where a value ends, and repairs of the faults that parsers refuse."""

from __future__ import annotations

import re
from typing import NamedTuple

_NEXT_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]])', re.DOTALL)
"""All up to the next bracket that is in no string, and that; nothing is tried twice."""
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,\]}"]++', re.DOTALL)
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
"""Between two objects of a list: where a piece may be cut, unless it lies within a value of one of them."""

_LITERAL = rb"[-+]?(?:nan(?:\([^)]*\))?|inf(?:inity)?)(?=\s*[,}\]])"
_NOT_A_NUMBER = re.compile(rb'(?<!\\)("\s*:\s*)' + _LITERAL, re.IGNORECASE)
_IN_A_LIST = re.compile(rb"[\[,]\s*" + _LITERAL, re.IGNORECASE)
_IN_A_LIST_OR_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[,]\s*)' + _LITERAL, re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BACKSLASH = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_TRUE_ESCAPE = re.compile(rb"\\\\")


class Repair(NamedTuple):
    text: bytes
    faults: dict[str, int]
    """How often each kind was mended."""


def end_of_value(text: bytes, start: int) -> int | None:
    """Return the index behind the JSON value that starts at `start`, None where `text` ends before it does."""
    first = text[start : start + 1]
    if first not in (b"{", b"["):
        match = _SCALAR.match(text, start)
        return match.end() if match and match.end() < len(text) else None
    depth, at = 0, start
    while match := _NEXT_BRACKET.match(text, at):
        at = match.end()
        depth += 1 if match[1] in (b"{", b"[") else -1
        if depth == 0:
            return at
    return None


def skip_space(text: bytes, start: int) -> int:
    """Return the index of the first byte from `start` on that is no white space."""
    while text[start : start + 1].isspace():
        start += 1
    return start


def repair(text: bytes) -> Repair:
    """Mend what can be told without doubt: non-numbers, control characters, bytes that are not UTF-8, lone backslashes.

    The same text comes back, with no fault, when there was none.
    """
    faults = {}
    text, count = _mend_numbers(text)
    if count:
        faults["a number that is not one (nan, inf)"] = count
    text, count = _CONTROL.subn(b"?", text)
    if count:
        faults["a control character"] = count
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        sound = text.decode("utf-8", "replace")
        faults["bytes that are not UTF-8"] = sound.count("\ufffd")
        text = sound.encode()
    text, count = _mend_backslashes(text)
    if count:
        faults["a backslash that escapes nothing"] = count
    return Repair(text, faults)


def _mend_numbers(text: bytes) -> tuple[bytes, int]:
    """Put null where nan or inf stand as values; never within a text."""
    text, count = _NOT_A_NUMBER.subn(rb"\1null", text)
    if not _IN_A_LIST.search(text):
        return text, count
    found = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal found
        if match[1] is None:
            return match[0]
        found += 1
        return match[1] + b"null"

    text = _IN_A_LIST_OR_TEXT.sub(mend, text)
    return text, count + found


def _mend_backslashes(text: bytes) -> tuple[bytes, int]:
    """Double the backslashes that escape nothing; pairs are kept as they are."""
    if b"\\" not in text:
        return text, 0
    parts, count = [], 0
    for part in _TRUE_ESCAPE.split(text):
        mended, n = _BACKSLASH.subn(rb"\\\\", part)
        parts.append(mended)
        count += n
    return b"\\\\".join(parts), count
