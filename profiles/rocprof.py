"""Read the JSON of rocprofv3 (rocprofiler-sdk) into an event table.

Source of the format: `rocprofv3 --output-format json`: one object per process with `kernel_symbols`, `strings` (names
of API calls by kind and operation) and `buffer_records`; times are ns of one clock.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import BinaryIO

import msgspec

from kernelwright.profiles.divide import Divider
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events
from kernelwright.profiles.health import Health
from kernelwright.profiles.jsonstream import JsonStream
from kernelwright.profiles.jsontext import repair
from kernelwright.profiles.rocprof_record import LISTS, TABLES, NameKey, Process, Record, spell
from kernelwright.profiles.rows import RowColumns
from kernelwright.profiles.stream import ByteStream

_KEY = "rocprofiler-sdk-tool"
REMEDY = "take the profile again with rocprofv3 --output-format json and let it finish"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def is_rocprof(head: bytes) -> bool:
    """Return whether the beginning `head` of a file is rocprofv3's JSON."""
    return f'"{_KEY}"'.encode() in head[:4096]


def read_rocprof(file: BinaryIO) -> Events:
    """Return kernels, copies and HIP calls; `health` says what was mended, lost or cut.

    One pass in bounded memory. Names may stand behind the records that refer to them; process and devices may not.
    Raises BrokenInput when the file is no rocprofv3 JSON.
    """
    stream = ByteStream(file)
    json = JsonStream(stream, REMEDY)
    reader = _Reader(json)
    reader.read()
    health = Health(
        repaired=dict(reader.repaired), dropped=dict(reader.dropped), cut=json.cut or stream.cut,
        unread_blocks=tuple(sorted(reader.unread)), notes=tuple(reader.notes),
    )  # fmt: skip
    header: dict[str, object] = {"writer": "rocprofv3", "deviceProperties": reader.devices}
    return reader.columns.finish(header, health, partial(spell, names=reader.names))


class _Reader:
    """Reads one file into `columns`, where names are keys that `names` has the texts of."""

    def __init__(self, json: JsonStream) -> None:
        self._json, self.columns = json, RowColumns()
        self.names: dict[NameKey, str] = {}
        self.devices: list[dict[str, str]] = []
        self.unread: set[str] = set()
        self.notes: list[str] = []
        self.repaired, self.dropped = Counter[str](), Counter[str]()

    def read(self) -> None:
        self._json.start()
        if not self._json.enter(b"{"):
            raise BrokenInput("rocprofv3 JSON that does not begin with an object", REMEDY)
        for key in self._json.keys():
            if key == _KEY and self._json.enter(b"["):
                self._read_processes()
            elif self._json.take_value() is not None:
                self.unread.add(key)

    def _read_processes(self) -> None:
        number = 0
        while self._json.enter(b"{"):
            self._read_process(Process(number))
            number += 1
            self._json.enter(b",")
        self._json.cut = not self._json.enter(b"]") or self._json.cut

    def _read_process(self, process: Process) -> None:
        for key in self._json.keys():
            if key == "buffer_records" and self._json.enter(b"{"):
                self._read_records(process)
                continue
            value = self._json.take_value()
            if value is not None and key in TABLES:
                self._take_table(process, key, value)
            else:
                self.unread.add(key)
        self.names |= process.names()
        self.devices += [{"name": agent.product_name or agent.name} for agent in process.gpus]

    def _take_table(self, process: Process, key: str, value: bytes) -> None:
        for mend in (bytes, lambda text: repair(text).text):
            try:
                process.tables[key] = msgspec.json.decode(mend(value), type=TABLES[key], strict=False)
                return
            except _UNREADABLE:
                continue
        self.notes.append(f"The file's {key} cannot be read: what refers to it has numbers for names.")

    def _read_records(self, process: Process) -> None:
        for kind in self._json.keys():
            if kind in LISTS and self._json.enter(b"["):
                sink = _Records(process, kind, self.columns)
                self._json.read_list(sink)
                self.repaired.update(sink.repaired)
                self.dropped.update(sink.dropped)
            else:
                self._json.take_value()


class _Records(Divider):
    """Takes the records of one list."""

    mark = b'"start_timestamp"'

    def __init__(self, process: Process, kind: str, columns: RowColumns) -> None:
        super().__init__()
        self._process, self._kind, self._columns = process, kind, columns
        self._decoder = msgspec.json.Decoder(list[Record], strict=False)

    def add(self, text: bytes) -> bool:
        try:
            records = self._decoder.decode(b"".join((b"[", text, b"]")))
        except _UNREADABLE:
            return False
        for record in records:
            self._columns.add(self._process.row(self._kind, record))
        return True
