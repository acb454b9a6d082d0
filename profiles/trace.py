"""Read a torch.profiler trace (Chrome JSON, plain or gzipped) into columns of integers."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kernelwright.profiles.digest import digest_bytes
from kernelwright.profiles.errors import BrokenInput

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"
RETAKE = "take the trace again and let the profiler finish writing it"

Integers = npt.NDArray[np.int64]


class _Event(msgspec.Struct):
    """The fields we need; `args` are never decoded, they hold literals and integers that JSON does not allow."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    dur: float = 0.0


class _File(msgspec.Struct):
    traceEvents: list[_Event] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Trace:
    """The complete (`X`) events of one trace file, in the order of the file; every column has length `len(trace)`."""

    digest: str
    """SHA-256 of the file as it lies on disk."""
    names: tuple[str, ...]
    categories: tuple[str, ...]
    lanes: tuple[tuple[int | str | None, int | str | None], ...]
    """(process, thread) of each lane."""
    name: Integers
    """Index into `names`."""
    category: Integers
    """Index into `categories`."""
    tid: Integers
    """Index into `lanes`: thread ids repeat between processes and may be text."""
    ts: Integers
    """Start, ns."""
    dur: Integers
    """Duration, ns."""

    def __len__(self) -> int:
        return len(self.ts)


def read_trace(path: Path) -> Trace:
    """Return the complete events of the trace file at `path`; plain JSON or gzip is told by content, not by name.

    Times are rounded to whole ns. A float64 of microseconds is exact to the ns up to 2^53 ns (104 days), which covers
    the relative times that PyTorch writes since 2.4; older absolute times carry a quarter of a microsecond.
    Raises BrokenInput when the file is missing, cut, not JSON, not a trace, or holds no complete event.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BrokenInput(f"cannot read the trace {path}: {error.strerror}", "check the path") from error
    events = [event for event in _decode(path, _unpack(path, content)) if event.ph == "X"]
    if not events:
        raise BrokenInput(
            f"{path} holds no complete (`X`) events", "profile with torch.profiler while the engine is serving requests"
        )
    names, name = _intern([event.name for event in events])
    categories, category = _intern([event.cat for event in events])
    lanes, tid = _intern([(event.pid, event.tid) for event in events])
    return Trace(
        digest=digest_bytes(content),
        names=names,
        categories=categories,
        lanes=lanes,
        name=name,
        category=category,
        tid=tid,
        ts=_to_ns(path, "ts", [event.ts for event in events]),
        dur=_to_ns(path, "dur", [event.dur for event in events]),
    )


def _unpack(path: Path, content: bytes) -> bytes:
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except EOFError as error:
            raise BrokenInput(f"{path} is cut: the gzip stream has no end", RETAKE) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BrokenInput(f"{path} is not a sound gzip file: {error}", RETAKE) from error
    content = content.removeprefix(UTF8_BOM)
    if not content.strip():
        raise BrokenInput(f"{path} is empty", RETAKE)
    return content


def _decode(path: Path, text: bytes) -> list[_Event]:
    """Return all events of `text`, an object with `traceEvents` or a bare list of events."""
    is_list = text.lstrip().startswith(b"[")
    try:
        # lax: some exporters write times as strings
        if is_list:
            return msgspec.json.decode(text, type=list[_Event], strict=False)
        file = msgspec.json.decode(text, type=_File, strict=False)
    except msgspec.ValidationError as error:
        raise BrokenInput(f"{path} is JSON but not a trace: {error}", "name a torch.profiler Chrome trace") from error
    except msgspec.DecodeError as error:
        what = "is cut: its JSON has no end" if "truncated" in str(error) else f"is not sound JSON: {error}"
        raise BrokenInput(f"{path} {what}", RETAKE) from error
    except UnicodeDecodeError as error:
        raise BrokenInput(f"{path} holds bytes that are not UTF-8: {error}", RETAKE) from error
    if isinstance(file.traceEvents, msgspec.UnsetType):
        raise BrokenInput(f"{path} has no `traceEvents`: it is JSON of another kind", "name a torch.profiler trace")
    return file.traceEvents


def _intern(values: list[Any]) -> tuple[tuple[Any, ...], Integers]:
    """Return the distinct `values` in order of appearance and, for each value, its index among them."""
    ids: dict[Any, int] = {}
    column = np.fromiter((ids.setdefault(value, len(ids)) for value in values), np.int64, len(values))
    return tuple(ids), column


def _to_ns(path: Path, field: str, microseconds: list[float]) -> Integers:
    ns = np.rint(np.array(microseconds, np.float64) * 1000.0)
    if not np.all(np.abs(ns) < 2.0**62):
        raise BrokenInput(f"{path}: a `{field}` does not fit 64-bit nanoseconds", RETAKE)
    return ns.astype(np.int64)
