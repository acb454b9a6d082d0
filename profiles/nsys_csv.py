"""Read the CSV of `nsys stats`: sums of kernels (`cuda_gpu_kern_sum`) or every kernel (`cuda_gpu_trace`).

Source of the format: headers of nsys 2021 to 2026. Lines of talk may stand before the header; units stand in the
column names and change with `--timeunit`; old versions give no unit and mean ns.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from kernelwright.profiles.device_time import KernelTime
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events
from kernelwright.profiles.health import Health
from kernelwright.profiles.redact import redact
from kernelwright.profiles.rows import Row, RowColumns

REMEDY = "name a CSV of `nsys stats -r cuda_gpu_kern_sum` or `-r cuda_gpu_trace --format csv`"
_NS = {"ns": 1, "us": 1000, "µs": 1000, "usec": 1000, "ms": 1_000_000, "s": 1_000_000_000, "nsec": 1, "": 1}
_BYTES = {"b": 1, "kb": 1000, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_UNIT = re.compile(r"\s*\(([^)]*)\)\s*$")
_TALK = 200
"""Lines that may stand before the header."""


@dataclass(frozen=True)
class KernelSums:
    """Kernels by name as a tool has summed them: nothing is known of when they ran."""

    kernels: tuple[KernelTime, ...]
    """The longest sum first."""
    health: Health


def is_nsys_csv(text: str) -> bool:
    """Return whether the beginning `text` of a file holds a header of `nsys stats`."""
    return any(_kind(line) for line in text.splitlines()[:_TALK])


def read_nsys_csv(text: str) -> KernelSums | Events:
    """Return what the CSV `text` holds. Raises BrokenInput when it has no header of these, or no sound row."""
    lines = text.removeprefix("\ufeff").splitlines()
    number = next((i for i, line in enumerate(lines[:_TALK]) if _kind(line)), None)
    if number is None:
        raise BrokenInput("no header of an nsys CSV is in this file", REMEDY)
    line = lines[number]
    header = next(csv.reader([line]))
    names = {_UNIT.sub("", name).strip().lower(): i for i, name in enumerate(header)}
    units = {_UNIT.sub("", name).strip().lower(): _unit(name) for name in header}
    table = _Columns(names, units, len(header))
    # csv.reader joins quoted names over several lines
    rows = csv.reader(iter([text + "\n" for text in lines[number + 1 :]]))
    try:
        return _read_sums(rows, table) if _kind(line) == "sum" else _read_trace(rows, table)
    except csv.Error as error:
        raise BrokenInput(f"a CSV that cannot be read: {error}", REMEDY) from error


def _kind(line: str) -> str | None:
    names = {_UNIT.sub("", name).strip().lower() for name in next(csv.reader([line]), [])}
    if {"instances", "total time", "name"} <= names or {"instances", "total time", "range"} <= names:
        return "sum"
    return "trace" if {"start", "duration", "corrid", "name"} <= names else None


def _unit(name: str) -> str:
    found = _UNIT.search(name)
    return found[1].strip().lower() if found else ""


@dataclass(frozen=True)
class _Columns:
    names: Mapping[str, int]
    units: Mapping[str, str]
    width: int

    def number(self, row: list[str], name: str, scales: Mapping[str, int]) -> int | None:
        """Return a cell in ns or bytes; None where it is empty. Raises ValueError when it is no number."""
        at = self.names.get(name)
        text = row[at].replace(",", "").strip() if at is not None else ""
        if not text or text == "-":
            return None
        try:
            return round(Decimal(text) * scales.get(self.units[name], 1))
        except InvalidOperation as error:
            raise ValueError(text) from error

    def text(self, row: list[str], name: str) -> str:
        at = self.names.get(name)
        return row[at].strip() if at is not None else ""


def _read_sums(rows: Iterator[list[str]], table: _Columns) -> KernelSums:
    found: dict[str, list[int]] = {}
    broken = 0
    for row in rows:
        if len(row) != table.width:
            broken += any(row)
            continue
        try:
            ns, count = table.number(row, "total time", _NS), table.number(row, "instances", {})
        except ValueError:
            broken += 1
            continue
        entry = found.setdefault(table.text(row, "name") or table.text(row, "range"), [0, 0])
        entry[0] += count or 0
        entry[1] += ns or 0
    if not found:
        raise BrokenInput("the CSV has a header and no row of a kernel", REMEDY)
    shown = {name: redact(name) for name in found}
    kernels = tuple(
        KernelTime(name=shown[name], count=count, ns=ns)
        for name, (count, ns) in sorted(found.items(), key=lambda item: -item[1][1])
    )
    dropped = {"a row that does not fit the header": broken} if broken else {}
    redacted = sum(name != text for name, text in shown.items())
    return KernelSums(kernels, Health(dropped=dropped, redacted=redacted))


def _read_trace(rows: Iterator[list[str]], table: _Columns) -> Events:
    columns, broken = RowColumns(), 0
    for row in rows:
        if len(row) != table.width:
            broken += any(row)
            continue
        try:
            start, dur = table.number(row, "start", _NS), table.number(row, "duration", _NS)
            size = table.number(row, "bytes", _BYTES)
        except ValueError:
            broken += 1
            continue
        if start is None or dur is None:
            broken += 1
            continue
        name, correlation = table.text(row, "name"), table.text(row, "corrid")
        lower = name.lower()
        category = "gpu_memcpy" if "memcpy" in lower else "gpu_memset" if "memset" in lower else "kernel"
        if category != "kernel" and not lower.startswith(("[cuda mem", "cuda mem")):
            category = "kernel"
        lane = (table.text(row, "device"), table.text(row, "strm"))
        columns.add(
            Row(
                category, name, lane, start, dur, int(correlation) if correlation.isdigit() else 0, track=lane,
                size=-1 if size is None else size,
            )
        )  # fmt: skip
    dropped = {"a row that does not fit the header": broken} if broken else {}
    note = "A CSV of nsys holds no launches: where kernels come from is not in it."
    return columns.finish({"writer": "nsys"}, Health(dropped=dropped, notes=(note,)))
