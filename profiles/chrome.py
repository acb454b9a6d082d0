"""Cut a Chrome trace into pieces of whole events, in one pass and bounded memory, and go on behind what is broken.

Source of the format: "Trace Event Format" (Chromium), as Kineto, the legacy autograd profiler, roctracer and others
write it: an object with `traceEvents`, or a bare list whose end may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kernelwright.profiles.errors import BrokenInput, EmptyInput
from kernelwright.profiles.jsontext import BOUNDARY, end_of_value, skip_space
from kernelwright.profiles.redact import redact
from kernelwright.profiles.stream import UTF8_BOM, ByteStream

PIECE_BYTES = 120 << 10
"""Small enough that what is decoded from a piece stays in a processor's cache."""
MOST_BLOCK_BYTES = 256 << 20
"""A value of the header, or a single event, above this is no trace of ours."""
REMEDY = "name a Chrome trace (JSON, packed or not) that torch.profiler wrote"
MOST_READ_BYTES = 1 << 20
"""Longer header values are not decoded."""
READ_BLOCKS = frozenset({
    "schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "record_shapes",
    "with_stack", "with_modules", "with_flops", "profile_memory", "cupti_version", "cuda_runtime_version",
    "cuda_driver_version", "hip_runtime_version", "hip_driver_version", "roctracer_version", "traceName", "trace_id",
})  # fmt: skip
"""All other top-level blocks stay unread: some writers put the process environment there."""


class Taken(NamedTuple):
    """What a sink did with the events it was given."""

    until: int
    """Index of the first byte that was not taken: behind the list's `]`, or of an event whose end is still to come."""
    ended: bool
    """Whether the list of events ended within them."""


Sink = Callable[[bytes, bool], Taken]
"""Takes events, comma-separated, and whether they are the last of the file, of which one may be cut."""


class ChromeReader:
    """One pass over `stream`: `read(sink)` hands all events to `sink` and collects the header on the way."""

    def __init__(self, stream: ByteStream) -> None:
        self.header: dict[str, Any] = {}
        self.unread: list[str] = []
        self.notes: list[str] = []
        self.cut = False
        self.has_events = False
        self._stream, self._text, self._final = stream, b"", False

    def read(self, sink: Sink) -> None:
        """Raises BrokenInput when the file is empty, or is no Chrome trace."""
        self._more()
        self._text = self._text.removeprefix(UTF8_BOM)
        while not self._text.strip() and not self._final:
            self._more()
        self._text = self._text.lstrip()
        if not self._text:
            raise EmptyInput("the file is empty", "take the trace again and let the profiler finish writing it")
        first, self._text = self._text[:1], self._text[1:]
        if first == b"[":
            self.has_events = True
            self._read_events(sink)
        elif first == b"{":
            self._read_object(sink)
        else:
            raise BrokenInput("the file is neither JSON nor another format known here", REMEDY)
        self.cut = self.cut or self._stream.cut
        if not self.has_events and not self.cut:
            raise BrokenInput(f"the file is JSON without `traceEvents`{self._what_else()}", REMEDY)
        if not self.cut and self._text.strip(b" \r\n\t,\x00"):
            self.notes.append("A second document follows the first one in the same file; it was not read.")

    def _what_else(self) -> str:
        kinds = {"nodes": ": an execution trace, which has no times", "rocprofiler-sdk-tool": ": output of rocprofv3"}
        return next((kinds[key] for key in self.unread if key in kinds), "")

    def _more(self, size: int = PIECE_BYTES) -> bool:
        data = self._stream.read(size)
        self._final = not data
        self._text += data
        return not self._final

    def _read_object(self, sink: Sink) -> None:
        """Read `"key": value, …}`; the values of other keys than READ_BLOCKS are skipped unread."""
        for key in self._keys():
            if key == "traceEvents" and self._peek() == b"[":
                self._text = self._text[1:]
                self.has_events = True
                self._read_events(sink)
                continue
            value = self._take_value()
            if value is None:
                self.cut = True
                return
            if key not in READ_BLOCKS:
                self.unread.append(key)
            elif len(value) <= MOST_READ_BYTES:
                self._note(key, value)

    def _note(self, key: str, value: bytes) -> None:
        try:
            self.header[key] = json.loads(redact(value.decode("utf-8", "replace")), strict=False)
        except (ValueError, RecursionError):
            self.notes.append(f"The header's {key} is not sound JSON; it was not read.")

    def _keys(self) -> Iterator[str]:
        """Yield the keys of the top-level object, the text then standing at the value; ends behind the object."""
        while True:
            while self._peek() == b",":
                self._text = self._text[1:]
            if self._peek() == b"}":
                self._text = self._text[1:]
                return
            key = self._take_value()
            if key is None or not key.startswith(b'"') or self._peek() != b":":
                self.cut = True
                return
            self._text = self._text[1:]
            self._peek()
            yield key[1:-1].decode("utf-8", "replace")

    def _peek(self) -> bytes:
        """Skip white space and return the next byte, none at the end."""
        while True:
            self._text = self._text[skip_space(self._text, 0) :]
            if self._text or not self._more():
                return self._text[:1]

    def _take_value(self) -> bytes | None:
        """Return the JSON value at which the text stands; None when the file ends within it."""
        size = PIECE_BYTES
        while True:
            end = end_of_value(self._text, 0)
            if end is not None:
                value, self._text = self._text[:end], self._text[end:]
                return value
            if len(self._text) > MOST_BLOCK_BYTES:
                raise BrokenInput("a single value of the file's header is over 256 MB", REMEDY)
            size *= 2
            if not self._more(size):
                return None

    def _read_events(self, sink: Sink) -> None:
        """Hand over events until their list ends; the text then stands behind its `]`."""
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
                raise BrokenInput("a single event of the trace is over 256 MB", REMEDY)
        start = skip_space(self._text, 0)
        if self._text[start : start + 1] == b"]":
            self._text = self._text[start + 1 :]
            return
        taken = sink(self._text, True)
        self.cut = not taken.ended
        self._text = self._text[taken.until :] if taken.ended else b""


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


def split_events(text: bytes) -> list[int]:
    """Return the starts of what looks like an event in `text`, ascending, the first 0."""
    return [0, *(match.end() for match in BOUNDARY.finditer(text))]
