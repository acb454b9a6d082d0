"""Walk through JSON of any size in one pass and bounded memory: objects key by key, long lists piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.jsontext import BOUNDARY, end_of_value, skip_space
from kernelwright.profiles.stream import UTF8_BOM, ByteStream

PIECE_BYTES = 120 << 10
"""Small enough that what is decoded from a piece stays in a processor's cache, and that its memory is used again."""
MOST_BLOCK_BYTES = 256 << 20
"""A value that is read at once, or a single object of a list, above this is no profile."""


class Taken(NamedTuple):
    """What a sink did with the objects it was given."""

    until: int
    """Index of the first byte that was not taken: behind the list's `]`, or of an object whose end is still to come."""
    ended: bool
    """Whether the list ended within them."""


Sink = Callable[[bytes, bool], Taken]
"""Takes objects of a list, comma-separated, and whether they are the last of the file, of which one may be cut."""


class JsonStream:
    """Stands at a place in the text of `stream`. `remedy` is what to do about a file that cannot be read."""

    def __init__(self, stream: ByteStream, remedy: str) -> None:
        self.cut = False
        """Whether the file ended within a value or a list."""
        self._stream, self._remedy, self._text, self._final = stream, remedy, b"", False

    def start(self) -> bytes:
        """Read up to the first byte of the document and return it; nothing where the file is empty."""
        self._more()
        self._text = self._text.removeprefix(UTF8_BOM)
        return self.peek()

    def peek(self) -> bytes:
        """Skip white space and return the next byte, none at the end."""
        while True:
            self._text = self._text[skip_space(self._text, 0) :]
            if self._text or not self._more():
                return self._text[:1]

    def enter(self, bracket: bytes) -> bool:
        """Step behind `bracket` where it stands next; return whether it does."""
        found = self.peek() == bracket
        if found:
            self._text = self._text[1:]
        return found

    def rest(self) -> bytes:
        """Return what is left of the text read so far."""
        return self._text

    def keys(self) -> Iterator[str]:
        """Yield the keys of the object entered, the text then standing at the value; ends behind the object."""
        while True:
            while self.enter(b","):
                pass
            if self.enter(b"}"):
                return
            key = self.take_value()
            if key is None or not key.startswith(b'"') or not self.enter(b":"):
                self.cut = True
                return
            self.peek()
            yield key[1:-1].decode("utf-8", "replace")

    def take_value(self) -> bytes | None:
        """Return the value at which the text stands; None, and `cut`, when the file ends within it."""
        size = PIECE_BYTES
        while True:
            end = end_of_value(self._text, 0)
            if end is not None:
                value, self._text = self._text[:end], self._text[end:]
                return value
            if len(self._text) > MOST_BLOCK_BYTES:
                raise BrokenInput("a single value of the file's header is over 256 MB", self._remedy)
            size *= 2
            if not self._more(size):
                self.cut = True
                return None

    def read_list(self, sink: Sink) -> None:
        """Hand over the objects of the list entered until it ends; the text then stands behind its `]`."""
        while True:
            text = self._text
            end, start = _last_boundary(text)
            if end:
                taken = sink(text[:end], False)
                self._text = text[taken.until if taken.ended or taken.until < end else start :]
                if taken.ended:
                    return
            if not self._more():
                break
            if len(self._text) > MOST_BLOCK_BYTES:
                raise BrokenInput("a single event of the trace is over 256 MB", self._remedy)
        if self.enter(b"]"):
            return
        taken = sink(self._text, True)
        self.cut = self.cut or not taken.ended
        self._text = self._text[taken.until :] if taken.ended else b""

    def _more(self, size: int = 0) -> bool:
        data = self._stream.read(size or PIECE_BYTES)
        self._final = not data
        self._text += data
        return not self._final


def _last_boundary(text: bytes) -> tuple[int, int]:
    """Return the indices behind the last `}` of `text` that a comma and a `{` follow, and of that `{`; 0 for none."""
    start = len(text)
    while (start := text.rfind(b"{", 0, start)) > 0:
        first = max(0, start - 64)
        before = text[first:start].rstrip()
        event = before[:-1].rstrip()
        if before.endswith(b",") and event.endswith(b"}"):
            return first + len(event), start
    return 0, 0


def split_objects(text: bytes) -> list[int]:
    """Return the starts of what looks like an object of a list in `text`, ascending, the first 0."""
    return [0, *(match.end() for match in BOUNDARY.finditer(text))]
