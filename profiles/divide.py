"""Take the objects of a list where not all of them can be read: find what is broken, and go on behind it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from typing import NamedTuple

from kernelwright.profiles.jsonstream import Taken
from kernelwright.profiles.jsontext import BOUNDARY, end_of_value, repair, skip_space

AT_ONCE = 64
MOST_IN_ONE = 6
MOST_LOOKED_AT = 32
SPACE = b" \r\n\t,"


class _Walk(NamedTuple):
    objects: list[tuple[int, int]]
    """(start, end) of those that end in the text."""
    until: int
    """Where the walk stopped: at an object without an end, behind the list's `]`, or at the end of the text."""
    closed: bool


class Divider(ABC):
    """The sink of a list: `add` takes what can be read; what was mended or lost is counted.

    `mark` is a key that every object of the list has, and none within them.
    """

    mark: bytes

    def __init__(self) -> None:
        self.repaired: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    @abstractmethod
    def add(self, text: bytes) -> bool:
        """Take the objects of `text`, comma-separated; False, having taken none, where it cannot be read."""

    def extract(self, text: bytes) -> bool:
        """Take what can be told of one object whose text is no JSON; False where that is nothing."""
        return False

    def __call__(self, text: bytes, final: bool) -> Taken:
        if self._add_or_mend(text):
            return Taken(len(text), ended=False)
        at, most = 0, AT_ONCE
        while True:
            walk = _walk(text, at, most)
            taken = self._add_run(text, walk.objects)
            if taken < len(walk.objects):
                at, ended = self._rescue(text, walk.objects[taken][0], final)
                if ended:
                    return Taken(at, ended=True)
                most = 1  # broken ones rarely come alone: feel the way
                continue
            at = walk.until
            if walk.closed or at == len(text):
                return Taken(at, walk.closed)
            if len(walk.objects) == most:
                most = min(4 * most, AT_ONCE)
                continue
            if not final and self._may_go_on(text, at):
                return Taken(at, ended=False)
            at, ended = self._rescue(text, at, final)
            if ended:
                return Taken(at, ended=True)

    def _add_or_mend(self, text: bytes) -> bool:
        whole = text.strip(SPACE)
        return not whole or self.add(whole) or self._mend(whole)

    def _mend(self, text: bytes) -> bool:
        mended = repair(text)
        if mended.faults and self.add(mended.text):
            self.repaired.update(mended.faults)
            return True
        return False

    def _add_run(self, text: bytes, objects: list[tuple[int, int]]) -> int:
        """Take the first of `objects`, up to one that cannot be read; return how many. Halves what cannot."""
        if not objects or self._add_or_mend(text[objects[0][0] : objects[-1][1]]):
            return len(objects)
        half = len(objects) // 2
        if not half:
            return 0
        taken = self._add_run(text, objects[:half])
        return taken if taken < half else half + self._add_run(text, objects[half:])

    def _may_go_on(self, text: bytes, start: int) -> bool:
        """Return whether the object at `start`, which has no end in `text`, may have one in the next piece.

        It may if what seems to be other objects behind it are few, as in a text of it, or values of its own.
        """
        behind = [match.end() for match in BOUNDARY.finditer(text, start)]
        return len(behind) <= MOST_IN_ONE or not any(self._is_item(text, at) for at in behind[:MOST_LOOKED_AT])

    def _is_item(self, text: bytes, start: int) -> bool:
        """Return whether an object of the list begins at `start`, and no value of one."""
        return self.mark in text[start : end_of_value(text, start)]

    def _rescue(self, text: bytes, start: int, final: bool) -> tuple[int, bool]:
        """Take what can be told of the broken object at `start`; return where to go on, and whether the list ended."""
        stop = next((m.end() for m in BOUNDARY.finditer(text, start) if self._is_item(text, m.end())), len(text))
        fragment = text[start:stop]
        end, close = _guess_close(fragment)
        whole = fragment[:end].strip(SPACE)
        if final and stop == len(text) and not close and end_of_value(whole, 0) is None:
            self.dropped["cut off"] += 1
        elif self.extract(whole):
            self.repaired["quotes or keys that are no JSON"] += 1
        else:
            self.dropped["unreadable"] += 1
        return (start + close, True) if close else (stop, False)


def _walk(text: bytes, at: int, most: int) -> _Walk:
    """Return the objects from `at` on, up to `most`, and up to one that has no end in `text`."""
    objects: list[tuple[int, int]] = []
    while len(objects) < most:
        at = skip_space(text, at)
        if at == len(text):
            break
        if text[at : at + 1] == b",":
            at += 1
            continue
        if text[at : at + 1] == b"]":
            return _Walk(objects, at + 1, closed=True)
        end = end_of_value(text, at)
        if end is None or end == at:
            break
        objects.append((at, end))
        at = end
    return _Walk(objects, at, closed=False)


_CLOSE = re.compile(rb"\}\s*,?\s*\](?=\s*(?:,|\}|$))")


def _guess_close(fragment: bytes) -> tuple[int, int]:
    """Return (end of a broken object, index behind the `]` that follows it, 0 for none) by what ends look like."""
    for match in _CLOSE.finditer(fragment):
        whole = fragment[: match.start() + 1]
        if whole.count(b"{") == whole.count(b"}") and whole.count(b"[") == whole.count(b"]"):
            return match.start() + 1, match.end()
    return len(fragment), 0
