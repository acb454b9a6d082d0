"""Read a profiler's file: what it is, is told by its content, not by its name."""

from __future__ import annotations

from pathlib import Path

from kernelwright.profiles.errors import BrokenInput, EmptyInput, KernelwrightError
from kernelwright.profiles.events import Events
from kernelwright.profiles.kineto import read_kineto
from kernelwright.profiles.ncu import KernelCounters, is_ncu_csv, read_ncu
from kernelwright.profiles.nsys import MAGIC, ZEROED, read_nsys
from kernelwright.profiles.nsys import REMEDY as EXPORT_AGAIN
from kernelwright.profiles.nsys_csv import KernelSums, is_nsys_csv, read_nsys_csv
from kernelwright.profiles.rocprof import is_rocprof, read_rocprof
from kernelwright.profiles.stream import ByteStream, open_file

HEAD_BYTES = 64 << 10
MOST_CSV_BYTES = 1 << 30
READS = (
    "a Chrome trace of torch.profiler, an sqlite export of Nsight Systems, a CSV of `nsys stats` or of Nsight Compute, "
    "or JSON of rocprofv3"
)


def read_trace(path: Path) -> Events:
    """Return the events of the trace at `path`: torch.profiler's, nsys' or rocprofv3's, packed or not.

    Raises BrokenInput when the file is missing, empty, or no trace. What of a trace is broken or cut off is left out:
    `health` says so.
    """
    found = read_file(path)
    if isinstance(found, Events):
        return found
    raise BrokenInput(f"{path} holds sums or counters, not a trace", "name a file that says when each kernel ran")


def read_file(path: Path) -> Events | KernelSums | tuple[KernelCounters, ...]:
    """Return what the file at `path` holds; for sums and counters see their readers. Raises BrokenInput as above."""
    try:
        return _read(path)
    except KernelwrightError as error:
        if str(path) in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", error.remedy) from error


def _read(path: Path) -> Events | KernelSums | tuple[KernelCounters, ...]:
    with open_file(path) as file:
        start = file.read(len(MAGIC))
        if start == MAGIC:
            return read_nsys(path)
        if start == ZEROED:
            raise BrokenInput("the file begins with zeros: an export that was interrupted", EXPORT_AGAIN)
        if start.startswith(b"NSYS") or path.suffix == ".nsys-rep":
            raise BrokenInput("a report of Nsight Systems in its own format", EXPORT_AGAIN)
        head = _peek(path)
        if not head.strip():
            raise EmptyInput("the file is empty", "take the trace again and let the profiler finish writing it")
        if head.lstrip()[:1] not in (b"{", b"["):
            return _read_text(path, head)
        file.seek(0)
        return read_rocprof(file) if is_rocprof(head) else read_kineto(file)


def _peek(path: Path) -> bytes:
    """Return the unpacked beginning of the file, without a byte order mark."""
    with open_file(path) as file:
        return ByteStream(file).read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")


def _read_text(path: Path, head: bytes) -> Events | KernelSums | tuple[KernelCounters, ...]:
    beginning = head.decode("utf-8", "replace")
    nsys, ncu = is_nsys_csv(beginning), is_ncu_csv(beginning)
    if not nsys and not ncu:
        raise BrokenInput("not a profile that is read here", f"name {READS}")
    with open_file(path) as file:
        stream, parts = ByteStream(file), list[bytes]()
        while part := stream.read(1 << 20):
            parts.append(part)
            if sum(map(len, parts)) > MOST_CSV_BYTES:
                raise BrokenInput("a CSV of over 1 GB", "export the sqlite database instead and name that")
    text = b"".join(parts).decode("utf-8", "replace")
    return read_ncu(text) if ncu else read_nsys_csv(text)
