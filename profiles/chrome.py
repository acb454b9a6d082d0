"""Read a Chrome trace: its events in pieces, its header on the way, and on behind what is broken.

Source of the format: "Trace Event Format" (Chromium), as Kineto, the legacy autograd profiler, roctracer and others
write it: an object with `traceEvents`, or a bare list whose end may be missing.
"""

from __future__ import annotations

import json
from typing import Any

from kernelwright.profiles.errors import BrokenInput, EmptyInput
from kernelwright.profiles.jsonstream import JsonStream, Sink
from kernelwright.profiles.redact import redact
from kernelwright.profiles.stream import ByteStream

REMEDY = "name a Chrome trace (JSON, packed or not) that torch.profiler wrote"
MOST_READ_BYTES = 1 << 20
"""Longer header values are not decoded."""
READ_BLOCKS = frozenset({
    "schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "record_shapes",
    "with_stack", "with_modules", "with_flops", "profile_memory", "cupti_version", "cuda_runtime_version",
    "cuda_driver_version", "hip_runtime_version", "hip_driver_version", "roctracer_version", "traceName", "trace_id",
})  # fmt: skip
"""All other top-level blocks stay unread: some writers put the process environment there."""


class ChromeReader:
    """One pass over `stream`: `read(sink)` hands all events to `sink` and collects the header on the way."""

    def __init__(self, stream: ByteStream) -> None:
        self.header: dict[str, Any] = {}
        self.unread: list[str] = []
        self.notes: list[str] = []
        self.cut = False
        self.has_events = False
        self._stream, self._json = stream, JsonStream(stream, REMEDY)

    def read(self, sink: Sink) -> None:
        """Raises BrokenInput when the file is empty, or is no Chrome trace."""
        first = self._json.start()
        if not first:
            raise EmptyInput("the file is empty", "take the trace again and let the profiler finish writing it")
        if self._json.enter(b"["):
            self.has_events = True
            self._json.read_list(sink)
        elif self._json.enter(b"{"):
            self._read_object(sink)
        else:
            raise BrokenInput("the file is neither JSON nor another format known here", REMEDY)
        self.cut = self._json.cut or self._stream.cut
        if not self.has_events and not self.cut:
            raise BrokenInput(f"the file is JSON without `traceEvents`{self._what_else()}", REMEDY)
        if not self.cut and self._json.rest().strip(b" \r\n\t,\x00"):
            self.notes.append("A second document follows the first one in the same file; it was not read.")

    def _what_else(self) -> str:
        kinds = {"nodes": ": an execution trace, which has no times", "rocprofiler-sdk-tool": ": output of rocprofv3"}
        return next((kinds[key] for key in self.unread if key in kinds), "")

    def _read_object(self, sink: Sink) -> None:
        """Read `"key": value, …}`; the values of other keys than READ_BLOCKS are skipped unread."""
        for key in self._json.keys():
            if key == "traceEvents" and self._json.enter(b"["):
                self.has_events = True
                self._json.read_list(sink)
                continue
            value = self._json.take_value()
            if value is None:
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
