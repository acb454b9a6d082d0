"""Collect rows of formats other than Chrome's, one by one, into an event table."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from kernelwright.profiles.events import Events, Frames, Lane, Pool
from kernelwright.profiles.health import Health
from kernelwright.profiles.redact import redact


class Row(NamedTuple):
    """One complete event; times in ns."""

    category: str
    name: Hashable
    """Its text, or a key of it."""
    lane: Lane
    """(process, thread). Ids of correlation are a process's own: `[7] …` marks what is of process 7."""
    ts: int
    dur: int
    correlation: int = 0
    track: Lane | None = None
    """(device, stream) of device work."""
    inputs: str = ""
    """`[shapes, types]` as JSON."""
    graph: int = 0
    size: int = -1


class RowColumns:
    """Builds an `Events`: `add` rows, then `finish`."""

    def __init__(self) -> None:
        self._pools = {name: dict[object, int]() for name in ("name", "category", "lane", "track", "inputs")}
        self._columns = {name: array("q") for name in _DTYPES}
        self._kinds = Counter[str]()

    def add(self, row: Row) -> None:
        columns = self._columns
        self._kinds[row.category] += 1
        columns["name"].append(self._number("name", row.name))
        columns["category"].append(self._number("category", row.category))
        columns["lane"].append(self._number("lane", row.lane))
        columns["ts"].append(row.ts)
        columns["dur"].append(row.dur)
        columns["correlation"].append(row.correlation)
        columns["stream"].append(self._number("track", row.track) if row.track is not None else -1)
        columns["inputs"].append(self._number("inputs", row.inputs) if row.inputs else -1)
        columns["graph"].append(row.graph)
        columns["size"].append(row.size)

    def _number(self, pool: str, value: object) -> int:
        numbers = self._pools[pool]
        return numbers.setdefault(value, len(numbers))

    def finish(self, header: dict[str, object], health: Health, spell: Callable[[Any], str] = str) -> Events:
        """Return the table; `spell` gives the text of a row's name. Each distinct name is redacted once."""
        columns = {name: np.array(values, _DTYPES[name]) for name, values in self._columns.items()}
        count = len(columns["ts"])
        texts = [spell(name) for name in self._pools["name"]]
        numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}  # two keys may spell one name
        columns["name"] = np.array([numbers[text] for text in texts], np.int32)[columns["name"]]
        names = list(numbers)
        shown = tuple(redact(name) for name in names)
        empty = np.zeros(0, np.int64)
        return Events(
            pool=Pool(
                names=shown, categories=tuple(map(str, self._pools["category"])),
                lanes=tuple(self._pools["lane"]), streams=tuple(self._pools["track"]),  # type: ignore[arg-type]
                inputs=tuple(map(str, self._pools["inputs"])),
            ),
            **columns,  # type: ignore[arg-type]
            external=np.zeros(count, np.int64),
            captured=np.full(count, -1, np.int32),
            collective=np.full(count, -1, np.int32),
            frames=Frames(empty.astype(np.int32), empty.astype(np.int32), empty, empty),
            header=header,
            kinds=dict(self._kinds.most_common()),
            health=health.model_copy(update={"redacted": sum(a != b for a, b in zip(names, shown, strict=True))}),
        )  # fmt: skip


_DTYPES: dict[str, type[np.integer]] = {
    "name": np.int32, "category": np.int32, "lane": np.int32, "ts": np.int64, "dur": np.int64,
    "correlation": np.int64, "stream": np.int32, "inputs": np.int32, "graph": np.int64, "size": np.int64,
}  # fmt: skip
