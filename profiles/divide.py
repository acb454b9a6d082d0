"""Find what is broken in a piece of a list: halve it until what cannot be read stands alone, and go on behind it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter

from kernelwright.profiles.jsonstream import Taken, split_objects
from kernelwright.profiles.jsontext import end_of_value, repair, skip_space

FEW = 16
MOST_IN_ONE = 6
SPACE = b" \r\n\t,"


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
        return self._divide(text, final)

    def _mend(self, text: bytes) -> bool:
        mended = repair(text)
        if mended.faults and self.add(mended.text):
            self.repaired.update(mended.faults)
            return True
        return False

    def _divide(self, text: bytes, final: bool) -> Taken:
        """Halve `text` until what cannot be read stands alone."""
        starts = split_objects(text)
        if len(starts) <= FEW:
            return self._take_singly(text, starts, final)
        middle = starts[len(starts) // 2]
        taken = self(text[:middle], False)
        if taken.ended:
            return taken
        rest = self(text[taken.until :], final)
        return Taken(taken.until + rest.until, rest.ended)

    def _take_singly(self, text: bytes, starts: list[int], final: bool) -> Taken:
        bounds = [*starts, len(text)]
        at = 0
        while at < len(starts):
            start, fragment, is_last = starts[at], text[starts[at] : bounds[at + 1]], at + 1 == len(starts)
            at += 1
            if self._add_or_mend(fragment):
                continue
            begin = skip_space(text, start)
            end = begin if text[begin : begin + 1] == b"]" else end_of_value(text, begin)
            if end is not None and self._add_or_mend(text[start:end]):
                at = bisect_left(starts, end)  # what looked like objects in between were values of this one
                close = _close_behind(text, end)
            elif end is None and not final and self._may_go_on(text, bounds[at:]):
                return Taken(start, ended=False)
            else:
                end, close = _guess_close(fragment)
                self._rescue(fragment[:end].rstrip(SPACE), may_be_cut=final and is_last and not close)
                close += start if close else 0
            if close:
                return Taken(close, ended=True)
        return Taken(len(text), ended=False)

    def _add_or_mend(self, text: bytes) -> bool:
        whole = text.rstrip(SPACE)
        return not whole or self.add(whole) or self._mend(whole)

    def _may_go_on(self, text: bytes, behind: list[int]) -> bool:
        """Return whether an object that has no end in `text` may have one in the next piece.

        `behind` is where other objects seem to begin in the rest of it: few of them may be in its texts, any number are
        values of its own if none is marked as an object of the list.
        """
        return len(behind) <= MOST_IN_ONE or self.mark not in text[behind[0] :]

    def _rescue(self, text: bytes, may_be_cut: bool) -> None:
        """Read the fields of an object one by one where its text is no JSON, e.g. for quotes within a name."""
        if may_be_cut and end_of_value(text, 0) is None:
            self.dropped["cut off"] += 1
        elif self.extract(text):
            self.repaired["quotes or keys that are no JSON"] += 1
        else:
            self.dropped["unreadable"] += 1


_CLOSE = re.compile(rb"\}\s*,?\s*\](?=\s*(?:,|\}|$))")


def _close_behind(text: bytes, end: int) -> int:
    """Return the index behind the `]` that follows an object which ends at `end`; 0 where none does."""
    at = skip_space(text, end)
    while text[at : at + 1] == b",":
        at = skip_space(text, at + 1)
    return at + 1 if text[at : at + 1] == b"]" else 0


def _guess_close(fragment: bytes) -> tuple[int, int]:
    """Return (end of a broken object, index behind the `]` that follows it, 0 for none) by what ends look like."""
    for match in _CLOSE.finditer(fragment):
        whole = fragment[: match.start() + 1]
        if whole.count(b"{") == whole.count(b"}") and whole.count(b"[") == whole.count(b"]"):
            return match.start() + 1, match.end()
    return len(fragment), 0
