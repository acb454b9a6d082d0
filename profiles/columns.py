"""Collect decoded events into the columns of an event table, piece by piece."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable
from itertools import compress
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kernelwright.profiles.decode import MOST_DURATION, NO_ARGS, NO_RAW, Args, Event
from kernelwright.profiles.events import (
    KERNELS,
    KNOWN,
    MEMOPS,
    Events,
    Flags,
    Frames,
    Integers,
    Lane,
    Pool,
)
from kernelwright.profiles.health import Health
from kernelwright.profiles.redact import redact

EXACT_US = float(1 << 43)
"""Below this a float64 of microseconds with three decimals still rounds to the right nanosecond (102 days)."""
FINE_US = float(1 << 40)
"""Below this its product with 1000 does, too: it is off by less than a quarter of a nanosecond (13 days)."""
MOST_US = 2.0**52
_DEVICE_WORK = KERNELS | MEMOPS
_FRAME = "python_function"
_LEGACY: dict[int | str | None, str] = {"CUDA functions": "kernel", "CPU functions": "cpu_op"}
"""Processes of the autograd profiler before Kineto, whose events had no category."""

BATCH = 1 << 15

Times = list[tuple[int, int]]
T = TypeVar("T", bound=Hashable)


class _Ids(dict[T, int], Generic[T]):
    """Numbers texts in order of appearance: `ids[text]`."""

    def __missing__(self, key: T) -> int:
        self[key] = number = len(self)
        return number


class _Column:
    """One column: values of the running batch in a list, those before it in arrays."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype, self._chunks = np.dtype(dtype), list[npt.NDArray[Any]]()
        self.batch: list[Any] = []

    def close_batch(self) -> npt.NDArray[Any]:
        """Return the batch as an array and begin the next one."""
        values = np.array(self.batch, self._dtype)
        self.batch.clear()
        return values

    def add(self, values: npt.NDArray[Any]) -> None:
        self._chunks.append(values)

    def join(self) -> npt.NDArray[Any]:
        joined = np.concatenate(self._chunks) if self._chunks else np.zeros(0, self._dtype)
        self._chunks.clear()
        return joined


class EventColumns:
    """Builds an `Events`; `add` takes pieces in the order of the file, `finish` joins them.

    Events are taken apart piece by piece, while they are in a processor's cache, into lists of numbers, and those
    become arrays batch by batch.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        """Events by category, those that are not complete (`X`) included; `None` where there is none."""
        self.flows: Counter[str] = Counter()
        self.labels: dict[int | str | None, str] = {}
        self._names, self._categories, self._collectives = _Ids[str](), _Ids[str](), _Ids[str]()
        self._lanes, self._streams, self._inputs = _Ids[Lane](), _Ids[Lane](), _Ids[bytes]()
        for name in (_FRAME, *_DEVICE_WORK):  # frames are number 0, device work comes next
            self._categories[name]
        self._frames = {name: _Column(dtype) for name, dtype in _FRAME_COLUMNS.items()}
        self._rows = {name: _Column(dtype) for name, dtype in _ROW_COLUMNS.items()}
        self._times: list[tuple[Integers, Integers]] = []
        self._open: dict[Lane, list[tuple[int, Event]]] = defaultdict(list)

    def add(self, events: list[Event], times: Times | None = None) -> bool:
        """Take events of any kind; without `times` (ns) theirs are read from float us. False: that would be inexact."""
        if times is None:
            exact_ts, exact_dur = _to_ns([e.ts for e in events]), _to_ns([e.dur for e in events])
            if exact_ts is None or exact_dur is None or np.abs(exact_dur).max(initial=0) >= MOST_DURATION:
                return False
            ts, dur = exact_ts, exact_dur
        else:
            ts, dur = np.array(times, np.int64).reshape(-1, 2).T
        marks = [e.ph for e in events]
        if marks.count("X") < len(marks):
            whole = np.fromiter(map("X".__eq__, marks), np.bool_, len(marks))
            self._take_others(list(compress(events, ~whole)), ts[~whole])
            events, ts, dur = list(compress(events, whole)), ts[whole], dur[whole]
        self._take_whole(events, ts, dur)
        if len(self._rows["name"].batch) >= BATCH:
            self._close_batch()
        return True

    def _take_whole(self, events: list[Event], ts: Integers, dur: Integers, counted: bool = False) -> None:
        batch = {name: column.batch for name, column in self._rows.items()}
        kinds = [e.cat for e in events]
        batch["category"] += map(self._categories.__getitem__, kinds)
        if "" in self._categories:
            kinds = self._name_legacy(events, counted)
        batch["name"] += map(self._names.__getitem__, [e.name for e in events])
        lanes = self._lanes
        batch["lane"] += [lanes[e.pid, e.tid] for e in events]
        self._times.append((ts, dur))
        self._take_arguments([e.args for e in compress(events, map(_FRAME.__ne__, kinds))])
        self._take_work(list(compress(events, map(_DEVICE_WORK.__contains__, kinds))))

    def _name_legacy(self, events: list[Event], counted: bool) -> list[str]:
        """Tell work by its process where events have no category; they count as what they are, if not `counted`."""
        named = [e.cat or _LEGACY.get(e.pid, "") for e in events]
        self._rows["category"].batch[len(self._rows["name"].batch) :] = map(self._categories.__getitem__, named)
        for event, kind in zip(events, named, strict=True):
            if event.cat != kind and not counted:
                self.kinds.update({"None": 1, kind: -1})
        return named

    def _take_arguments(self, args: list[Args]) -> None:
        batch = {name: column.batch for name, column in self._rows.items()}
        batch["correlation"] += [a.correlation for a in args]
        batch["external"] += [a.external or a.old_external for a in args]
        names, inputs = self._names, self._inputs
        batch["captured"] += [names[a.kernel] if a.kernel else -1 for a in args]
        batch["inputs"] += [inputs[b",".join((a.dims, a.types))] if a.dims is not NO_RAW else -1 for a in args]
        batch["collective"] += [self._collectives[_collective(a)] if a.collective else -1 for a in args]

    def _take_work(self, work: list[Event]) -> None:
        batch, streams = {name: column.batch for name, column in self._rows.items()}, self._streams
        batch["stream"] += [streams[e.pid, e.tid if e.args.stream is None else e.args.stream] for e in work]
        batch["graph"] += [e.args.graph for e in work]
        batch["size"] += [e.args.bytes for e in work]

    def _close_batch(self, counted: bool = False) -> None:
        """Make the lists of the batch arrays; `counted`: its events are in `kinds` already."""
        ts, dur = (np.concatenate(times) for times in zip(*self._times, strict=True)) if self._times else _NO_TIMES
        self._times.clear()
        values = {name: column.close_batch() for name, column in self._rows.items() if column.batch}
        categories = values.pop("category", np.zeros(0, np.int32))
        if not counted:
            for name, count in zip(self._categories, np.bincount(categories).tolist(), strict=False):
                self.kinds[name or "None"] += count
        common = {name: values.pop(name, np.zeros(0, np.int32)) for name in ("name", "lane")}
        is_row = categories != 0
        _put(self._frames, ~is_row, **common, ts=ts, dur=dur)
        _put(self._rows, is_row, **common, ts=ts, dur=dur, category=categories)
        kinds = categories[is_row]
        is_work = (kinds > 0) & (kinds <= len(_DEVICE_WORK))
        for name, default in _OF_WORK.items():
            column = np.full(len(kinds), default, _ROW_COLUMNS[name])
            column[is_work] = values.pop(name, 0)
            self._rows[name].add(column)
        for name, column in values.items():
            self._rows[name].add(column)

    def _take_others(self, events: list[Event], ts: Integers) -> None:
        """Count what is no complete event; keep the halves of one (`B`, `E`) and the names of processes."""
        self.kinds.update([e.cat or "None" for e in events])
        marks = Counter([e.ph for e in events])
        self.flows.update({mark: marks[mark] for mark in ("s", "f") if marks[mark]})
        if marks.keys().isdisjoint("BEM"):
            return
        for event, start in zip(events, ts.tolist(), strict=True):
            if event.ph in ("B", "E"):
                self._open[event.pid, event.tid].append((start, event))
            elif event.ph == "M" and event.name == "process_name" and event.args is not NO_ARGS:
                self.labels[event.pid] = event.args.name

    def _pair(self) -> int:
        """Join begin and end events of each thread in order of time; return how many had no partner."""
        alone = 0
        whole: list[tuple[Event, int, int]] = []
        for halves in self._open.values():
            stack: list[tuple[int, Event]] = []
            for ts, event in sorted(halves, key=lambda half: half[0]):
                if event.ph == "B":
                    stack.append((ts, event))
                elif stack:
                    start, begun = stack.pop()
                    whole.append((begun, start, ts - start))
                else:
                    alone += 1
            alone += len(stack)
        self._open.clear()
        if whole:
            events = [event for event, *_ in whole]
            ts, dur = np.array([times for _, *times in whole], np.int64).T
            self._take_whole(events, ts, dur, counted=True)
            self._close_batch(counted=True)
        return alone

    def finish(self, header: dict[str, object], health: Health) -> Events:
        """Return the table; names are redacted here, each distinct one once."""
        self._close_batch()
        alone = self._pair()
        notes = (f"{alone} begin or end events have no partner; they were left out.",) if alone else ()
        names, redacted = _redact_all(self._names)
        unknown = {name: n for name, n in self.kinds.items() if name not in KNOWN and name != "None"}
        frames, rows = ({name: column.join() for name, column in table.items()} for table in (self._frames, self._rows))
        pool = Pool(
            names=names, categories=tuple(self._categories), streams=tuple(self._streams), lanes=tuple(self._lanes),
            inputs=tuple(_describe_inputs(text) for text in self._inputs),
            collectives=tuple(self._collectives),
        )  # fmt: skip
        return Events(
            pool=pool,
            **rows,
            frames=Frames(**frames),
            header=header,
            labels={pid: redact(label) for pid, label in self.labels.items()},
            kinds={name: n for name, n in self.kinds.most_common() if n},
            flows=dict(self.flows),
            health=health.model_copy(
                update={"unknown_categories": unknown, "redacted": redacted, "notes": (*health.notes, *notes)}
            ),
        )


_FRAME_COLUMNS: dict[str, npt.DTypeLike] = {"name": np.int32, "lane": np.int32, "ts": np.int64, "dur": np.int64}
_ROW_COLUMNS: dict[str, npt.DTypeLike] = _FRAME_COLUMNS | {
    "category": np.int32, "correlation": np.int64, "external": np.int64, "stream": np.int32, "inputs": np.int32,
    "graph": np.int64, "captured": np.int32, "collective": np.int32, "size": np.int64,
}  # fmt: skip


_OF_WORK = {"stream": -1, "graph": 0, "size": -1}
"""What only device work has, and what stands there for other rows."""
_NO_TIMES = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _put(columns: dict[str, _Column], chosen: Flags, **values: npt.NDArray[Any]) -> None:
    for name, column in values.items():
        columns[name].add(column[chosen])


def _to_ns(microseconds: list[float]) -> Integers | None:
    """Return times in ns, exactly; None where a float64 no longer tells the nanosecond."""
    times = np.array(microseconds, np.float64)
    size = np.abs(times)
    if not len(times) or size.max() < FINE_US:
        return np.rint(times * 1000.0).astype(np.int64)
    whole = np.floor(times)
    if not np.all(size < MOST_US):
        return None
    part = times - whole
    if np.any(part[size >= EXACT_US]):
        return None
    return whole.astype(np.int64) * 1000 + np.rint(part * 1000.0).astype(np.int64)


def _describe_inputs(text: bytes) -> str:
    """Return `[shapes, types]` as JSON: `text` is both, the types may be missing."""
    return f"[{text.decode('utf-8', 'replace')}{'[]' if text.endswith(b',') else ''}]"


def _collective(args: Any) -> str:
    return json.dumps({
        "name": args.collective, "in": args.in_elements, "out": args.out_elements, "dtype": args.dtype,
        "size": args.group_size, "group": args.group,
    })  # fmt: skip


def _redact_all(names: dict[str, int]) -> tuple[tuple[str, ...], int]:
    shown = tuple(redact(name) for name in names)
    return shown, sum(a != b for a, b in zip(names, shown, strict=True))
