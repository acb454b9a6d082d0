"""Walk through JSON of any size in one pass and bounded memory: objects key by key, long lists piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.jsontext import end_of_value, skip_space
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
        self._stream, self._remedy, self._text, self._at = stream, remedy, b"", 0

    def start(self) -> bytes:
        """Read up to the first byte of the document and return it; nothing where the file is empty."""
        self._more(PIECE_BYTES)
        self._text = self._text.removeprefix(UTF8_BOM)
        return self.peek()

    def peek(self) -> bytes:
        """Skip white space and return the next byte, none at the end."""
        while True:
            self._at = skip_space(self._text, self._at)
            if self._at < len(self._text) or not self._more(PIECE_BYTES):
                return self._text[self._at : self._at + 1]

    def enter(self, bracket: bytes) -> bool:
        """Step behind `bracket` where it stands next; return whether it does."""
        found = self.peek() == bracket
        self._at += found
        return found

    def rest(self) -> bytes:
        """Return what is left of the text read so far."""
        return self._text[self._at :]

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
            end = end_of_value(self._text, self._at)
            if end is not None:
                value, self._at = self._text[self._at : end], end
                return value
            if len(self._text) - self._at > MOST_BLOCK_BYTES:
                raise BrokenInput("a single value of the file's header is over 256 MB", self._remedy)
            size *= 2
            if not self._more(size):
                self.cut = True
                return None

    def read_list(self, sink: Sink) -> None:
        """Hand over the objects of the list entered until it ends; the text then stands behind its `]`."""
        size = PIECE_BYTES
        while True:
            end, start = _last_boundary(self._text, self._at)
            taken = sink(self._text[self._at : end], False) if end else Taken(0, ended=False)
            if taken.until or taken.ended:
                until = self._at + taken.until
                self._at = until if taken.ended or until < end else start
                if taken.ended:
                    return
            # an object longer than a piece is looked at again with twice as much behind it
            size = PIECE_BYTES if taken.until else 2 * size
            if not self._more(size):
                break
            if len(self._text) > MOST_BLOCK_BYTES:
                raise BrokenInput("a single event of the trace is over 256 MB", self._remedy)
        if self.enter(b"]"):
            return
        taken = sink(self.rest(), True)
        self.cut = self.cut or not taken.ended
        self._at = self._at + taken.until if taken.ended else len(self._text)

    def _more(self, size: int) -> bool:
        data = self._stream.read(size)
        self._text, self._at = self._text[self._at :] + data, 0
        return bool(data)


def _last_boundary(text: bytes, begin: int) -> tuple[int, int]:
    """Return the indices behind the last `}` from `begin` on that `, {` follows, and of that `{`; 0 for none."""
    start = len(text)
    while (start := text.rfind(b"{", begin, start)) > begin:
        first = max(begin, start - 64)
        before = text[first:start].rstrip()
        event = before[:-1].rstrip()
        if before.endswith(b",") and event.endswith(b"}"):
            return first + len(event), start
    return 0, 0
