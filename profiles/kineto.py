"""Read a trace of torch.profiler (Kineto), of any age and vendor, into an event table."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import BinaryIO

from kernelwright.profiles.chrome import ChromeReader
from kernelwright.profiles.columns import EventColumns
from kernelwright.profiles.decode import Decoder
from kernelwright.profiles.events import Events
from kernelwright.profiles.health import Health
from kernelwright.profiles.stream import ByteStream


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from walking over what is decoded: none of it refers back to itself."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_kineto(file: BinaryIO) -> Events:
    """Return the events of a Chrome trace, packed or not; `health` says what was mended, lost or cut.

    Raises BrokenInput when the file is empty, is JSON of another kind, or is no JSON at all.
    """
    stream, columns = ByteStream(file), EventColumns()
    reader, decoder = ChromeReader(stream), Decoder(columns)
    with _no_collection():
        reader.read(decoder)
    health = Health(
        repaired=dict(decoder.repaired), dropped=dict(decoder.dropped), cut=reader.cut,
        unread_blocks=tuple(reader.unread), notes=tuple(reader.notes),
    )  # fmt: skip
    return columns.finish(reader.header, health)
