"""Decode pieces of a Chrome trace: typed and fast, loosely where types differ, event by event where text is broken."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal, Protocol, cast

import msgspec

from kernelwright.profiles.divide import Divider
from kernelwright.profiles.events import KNOWN
from kernelwright.profiles.jsontext import Repair, repair

PATIENCE = 16
"""So many pieces may hold events without a known category before the fastest decoder is no longer tried."""


NO_RAW = msgspec.Raw()
MOST = 1 << 62
MOST_DURATION = 1 << 53
"""ns: 104 days."""
Int = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments that are needed; all others are never decoded, they may hold literals JSON does not allow."""

    correlation: Int = 0
    external: Int = msgspec.field(name="External id", default=0)
    old_external: Int = msgspec.field(name="external id", default=0)
    stream: int | str | None = None
    bytes: Int = -1
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NO_RAW)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NO_RAW)
    graph: Int = msgspec.field(name="graph id", default=0)
    kernel: str = ""
    name: str = ""
    collective: str = msgspec.field(name="Collective name", default="")
    in_elements: int = msgspec.field(name="In msg nelems", default=0)
    out_elements: int = msgspec.field(name="Out msg nelems", default=0)
    dtype: str = ""
    group_size: int = msgspec.field(name="Group size", default=0)
    group: str = msgspec.field(name="Process Group Name", default="")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    name: str = ""
    ph: str = ""
    cat: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    """Start, us."""
    dur: float = 0.0
    args: Args = NO_ARGS


Mark = Literal["X", "s", "f", "i", "M", "B", "E", "C", "b", "e", "n", "t"]


class _Known(msgspec.Struct, gc=False):
    """The same where category and phase are known beforehand: their texts are no new objects; arguments wait."""

    name: str = ""
    ph: Mark = "X"
    cat: Literal[tuple(sorted(KNOWN))] = ""  # type: ignore[valid-type]
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    dur: float = 0.0
    args: Args = NO_ARGS


class _Loose(msgspec.Struct, gc=False):
    """The same with any types: times as text, ids of any size, no name."""

    name: Any = ""
    ph: Any = ""
    cat: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = 0
    dur: Any = 0
    args: Any = None


class Columns(Protocol):
    def add(self, events: list[Event], times: list[tuple[int, int]] | None = None) -> bool:
        """Take `events`, with exact (start, duration) in ns where given. False: their times need exact reading."""


class Decoder(Divider):
    """The sink of a ChromeReader: decodes into `columns` and counts what was mended or lost."""

    mark = b'"ph"'

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self._columns = columns
        self._fast = cast("msgspec.json.Decoder[list[Event]]", msgspec.json.Decoder(list[_Known]))
        self._plain = msgspec.json.Decoder(list[Event])
        self._balance = PATIENCE
        self._exact = msgspec.json.Decoder(list[_Loose], float_hook=str)

    def add(self, text: bytes) -> bool:
        listed = b"".join((b"[", text, b"]"))
        decoders = (self._fast, self._plain) if self._balance > 0 else (self._plain,)
        for decoder in decoders:
            try:
                if self._columns.add(decoder.decode(listed)):
                    self._balance += decoder is self._fast
                    return True
                break
            except msgspec.ValidationError:
                self._balance -= 2 * (decoder is self._fast)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return False
        try:
            loose = self._exact.decode(listed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._add_loose(loose)

    def _add_loose(self, loose: list[_Loose]) -> bool:
        timed = [(event, exact_ns(event.ts), exact_ns(event.dur)) for event in loose]
        sound = [
            (_tighten(event), ts, dur)
            for event, ts, dur in timed
            if ts is not None and dur is not None and abs(dur) < MOST_DURATION
        ]
        if len(sound) < len(timed):
            self.dropped["times that are no numbers, or too large"] += len(timed) - len(sound)
        return self._columns.add([event for event, *_ in sound], [(ts, dur) for _, ts, dur in sound])

    def extract(self, text: bytes) -> bool:
        found = _fields(repair(text))
        return found is not None and self._add_loose([found])


def _field(key: str, value: str) -> re.Pattern[bytes]:
    return re.compile(rf'"?{key}"\s*:\s*{value}'.encode(), re.DOTALL)


_NAME = _field("name", r'"(.*?)"\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|bp)"\s*:|\}\s*$)')
_TEXTS = {key: _field(key, r'"([^"]*)"') for key in ("ph", "cat")}
_TIMES = {key: _field(key, r'"?(-?[0-9][0-9.eE+-]*)') for key in ("ts", "dur")}
_IDS = {key: _field(key, r'(?:"([^"]*)"|(-?[0-9]+))') for key in ("pid", "tid")}
_ARGS = {key: _field(key, r'"?([0-9]+)') for key in ("correlation", "External id", "stream")}


def _fields(mended: Repair) -> _Loose | None:
    text = mended.text
    name = _NAME.search(text)
    texts = {key: found.group(1).decode() for key, pattern in _TEXTS.items() if (found := pattern.search(text))}
    times = {key: found.group(1).decode() for key, pattern in _TIMES.items() if (found := pattern.search(text))}
    if name is None or "ph" not in texts or "ts" not in times:
        return None
    ids: dict[str, Any] = {}
    for key, pattern in _IDS.items():
        if found := pattern.search(text):
            ids[key] = found.group(1).decode() if found.group(1) is not None else int(found.group(2))
    args = {key: int(found.group(1)) for key, pattern in _ARGS.items() if (found := pattern.search(text))}
    shown = " ".join(name.group(1).decode("utf-8", "replace").split())
    return _Loose(name=shown, args=args, **texts, **times, **ids)


def _tighten(event: _Loose) -> Event:
    args = event.args if isinstance(event.args, dict) else {}
    tight = Args(
        correlation=_integer(args.get("correlation"), 0),
        external=_integer(args.get("External id", args.get("external id")), 0),
        stream=_id(args.get("stream")),
        bytes=_integer(args.get("bytes"), -1),
        dims=_raw(args.get("Input Dims")),
        types=_raw(args.get("Input type")),
        graph=_integer(args.get("graph id"), 0),
        kernel=_text(args.get("kernel")),
        name=_text(args.get("name")),
        collective=_text(args.get("Collective name")),
        in_elements=_integer(args.get("In msg nelems"), 0),
        out_elements=_integer(args.get("Out msg nelems"), 0),
        dtype=_text(args.get("dtype")),
        group_size=_integer(args.get("Group size"), 0),
        group=_text(args.get("Process Group Name")),
    )
    return Event(
        name=_text(event.name), ph=_text(event.ph), cat=_text(event.cat), pid=_id(event.pid), tid=_id(event.tid),
        args=tight,
    )  # fmt: skip


_HUGE = re.compile(r"[eE][+-]?\d{3}|\d{40}")
"""An exponent or a number so long that no clock shows it; as a fraction it would fill the memory."""


def exact_ns(microseconds: object) -> int | None:
    """Return a time written as an integer or as decimal text in ns, the nearest one; None where it fits no clock."""
    text = str(microseconds)
    if _HUGE.search(text):
        return None
    try:
        ns = round(Fraction(text) * 1000)
    except (ValueError, ZeroDivisionError):
        return None
    return ns if abs(ns) < MOST else None


def _integer(value: object, default: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        return default
    return number if abs(number) < MOST else default


def _id(value: object) -> int | str | None:
    if value is None or (isinstance(value, int) and abs(value) < MOST):
        return value
    return str(value)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _raw(value: object) -> msgspec.Raw:
    return NO_RAW if value is None else msgspec.Raw(msgspec.json.encode(value))
