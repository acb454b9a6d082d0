"""Read an Nsight Systems sqlite export into an event table.

Source of the format: `nsys export --type sqlite`, schema 2 to 3 (`META_DATA_EXPORT`): tables are there only where
something was traced, some carry `_V2` or `_V3` behind their names, names are texts or indices into `StringIds`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events, Lane
from kernelwright.profiles.health import Health
from kernelwright.profiles.rows import Row, RowColumns

MAGIC = b"SQLite format 3\x00"
ZEROED = bytes(len(MAGIC))
REMEDY = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_PUSH_POP, _START_END = 59, 60
_BATCH = 1 << 14
_OP_ID = re.compile(r",\s*(?:op_id|seq|sizes|input_op_ids)\s*=.*$", re.DOTALL)
_SIZES = re.compile(r"sizes\s*=\s*(\[[\[\]\d,\s]*\])")
_PRIVATE = re.compile(r"TARGET_INFO_SYSTEM_ENV|ProcessStreams|ENVIRONMENT", re.IGNORECASE)


class _Source(NamedTuple):
    """A table and how its rows become events."""

    prefix: str
    category: str
    columns: tuple[str, ...]
    """Wanted columns; those a table does not have are read as NULL."""


_SOURCES = (
    _Source(
        "CUPTI_ACTIVITY_KIND_KERNEL", "kernel",
        ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName", "graphId"),
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy",
        ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "copyKind", "bytes", "graphId"),
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset",
        ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "value", "bytes", "graphId"),
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_runtime", ("start", "end", "globalTid", "correlationId", "nameId"),
    ),
)  # fmt: skip


def read_nsys(path: Path) -> Events:
    """Return the kernels, memory operations, launches and NVTX ranges of the sqlite export at `path`.

    Ranges of PyTorch's `emit_nvtx` (`aten::mul, op_id = 7`) become ops. The environment and the output of processes
    in the file are not read. Raises BrokenInput when the file is no such export.
    """
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            return _Export(database).read()
    except sqlite3.DatabaseError as error:
        raise BrokenInput(f"not a sound sqlite file: {error}", REMEDY) from error


class _Export:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        self._tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._notes: list[str] = []
        self._dropped: dict[str, int] = {}
        self._rows = RowColumns()

    def read(self) -> Events:
        if not any(name.startswith(("CUPTI_", "NVTX_", "META_DATA_", "StringIds")) for name in self._tables):
            raise BrokenInput("an sqlite file that nsys did not write", REMEDY)
        self._names: dict[int, str] = dict(self._select("StringIds", ("id", "value")))
        for source in _SOURCES:
            for row in self._select(source.prefix, source.columns):
                if not _are_numbers(row, source.columns):
                    self._drop(f"{source.category} without a start or an end, or with text for a number")
                    continue
                self._rows.add(self._work(source, row) if "deviceId" in source.columns else self._call(row))
        self._read_ranges()
        self._look_for_whole_graphs()
        unread = tuple(sorted(name for name in self._tables if _PRIVATE.search(name)))
        if not self._table("CUPTI_ACTIVITY_KIND_KERNEL"):
            self._notes.append("There is no table of kernels: no CUDA work was traced in this export.")
        health = Health(dropped=self._dropped, unread_blocks=unread, notes=tuple(self._notes))
        return self._rows.finish(self._header(), health)

    def _work(self, source: _Source, row: tuple[Any, ...]) -> Row:
        start, end, device, stream, correlation, process, first, second, graph = row
        if source.category == "kernel":
            name = self._names.get(first) or self._names.get(second) or f"kernel {first}"
            size = -1
        else:
            name = f"Memcpy (kind {first})" if source.category == "gpu_memcpy" else "Memset"
            size = -1 if second is None else second
        pid = _pid(process)
        lane: Lane = (device, stream)
        return Row(
            source.category, name, (f"[{pid}] GPU {device}", stream), start, end - start, correlation or 0,
            track=lane, graph=graph or 0, size=size,
        )  # fmt: skip

    def _call(self, row: tuple[Any, ...]) -> Row:
        start, end, thread, correlation, name = row
        pid = _pid(thread)
        text = re.sub(r"_v\d+$", "", self._names.get(name, f"call {name}"))
        category = "cuda_runtime" if text.startswith("cuda") else "cuda_driver"
        return Row(category, text, (f"[{pid}] {pid}", _tid(thread)), start, end - start, correlation or 0)

    def _read_ranges(self) -> None:
        columns = ("start", "end", "eventType", "text", "textId", "globalTid")
        for start, end, kind, text, text_id, thread in self._select("NVTX_EVENTS", columns):
            name = text if text is not None else self._names.get(text_id)
            if name is None or kind not in (_PUSH_POP, _START_END, None):
                continue
            if not isinstance(start, int) or not isinstance(end, int):
                self._drop("NVTX range that was still open at the end")
                continue
            short = _OP_ID.sub("", name)
            is_op = short != name
            sizes = _SIZES.search(name) if is_op else None
            inputs = _inputs(sizes[1]) if sizes else ""
            pid = _pid(thread)
            category = "cpu_op" if is_op else "user_annotation"
            self._rows.add(Row(category, short, (f"[{pid}] {pid}", _tid(thread)), start, end - start, inputs=inputs))

    def _look_for_whole_graphs(self) -> None:
        """Graphs traced as a whole hide their kernels: say how many, and for how long."""
        spans = list(self._select("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ("start", "end")))
        if spans:
            total = sum(end - start for start, end in spans if isinstance(start, int) and isinstance(end, int))
            self._notes.append(
                f"{len(spans)} graph replays ({total / 1e6:.3f} ms) were traced as wholes: their kernels are not here. "
                "Take it again with --cuda-graph-trace=node."
            )

    def _header(self) -> dict[str, object]:
        devices = [
            {"id": i, "name": name, "numSms": sms, "memoryBandwidth": bandwidth}
            for i, name, sms, bandwidth in self._select("TARGET_INFO_GPU", ("id", "name", "smCount", "memoryBandwidth"))
        ]
        versions = dict(self._select("META_DATA_EXPORT", ("name", "value")))
        return {
            "writer": "nsys", "deviceProperties": devices,
            "schemaVersion": f"{versions.get('EXPORT_SCHEMA_VERSION_MAJOR', '?')}."
            f"{versions.get('EXPORT_SCHEMA_VERSION_MINOR', '?')}",
        }  # fmt: skip

    def _drop(self, why: str) -> None:
        self._dropped[why] = self._dropped.get(why, 0) + 1

    def _table(self, prefix: str) -> str | None:
        """Return the table called `prefix`, or with a version behind it, the latest."""
        found = sorted(name for name in self._tables if re.fullmatch(re.escape(prefix) + r"(?:_V\d+)?", name))
        return found[-1] if found else None

    def _select(self, prefix: str, wanted: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the `wanted` columns of a table, None for those it does not have; nothing where there is no table."""
        table = self._table(prefix)
        if table is None:
            return
        has = {row[1] for row in self._database.execute(f'PRAGMA table_info("{table}")')}
        columns = ", ".join(f'"{name}"' if name in has else "NULL" for name in wanted)
        cursor = self._database.execute(f'SELECT {columns} FROM "{table}"')
        while rows := cursor.fetchmany(_BATCH):
            yield from rows


def _are_numbers(row: tuple[Any, ...], columns: tuple[str, ...]) -> bool:
    """Return whether start and end are numbers and all else a number or nothing: sqlite keeps any type anywhere."""
    known = dict(zip(columns, row, strict=True))
    return all(isinstance(known[name], int) for name in ("start", "end")) and all(
        value is None or isinstance(value, int) for value in row
    )


def _pid(packed: int | None) -> int:
    """Process of a `globalPid` or `globalTid`."""
    return 0 if packed is None else (packed >> 24) & 0xFFFFFF


def _tid(packed: int | None) -> int:
    return 0 if packed is None else packed & 0xFFFFFF


def _inputs(sizes: str) -> str:
    try:
        return json.dumps([json.loads(sizes), []])
    except ValueError:
        return ""
