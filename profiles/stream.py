"""The bytes of a file, unpacked where they are gzip: told by content, read as far as it goes."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO

from kernelwright.profiles.errors import BrokenInput

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"
_PACKED = 1 << 18


class ByteStream:
    """Read `file` from its start; `cut` says afterwards that a gzip stream had no sound end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.cut = file, False
        head = file.read(2)
        file.seek(0)
        self._unpacker = zlib.decompressobj(wbits=31) if head == GZIP_MAGIC else None
        self._packed = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        """Return about `size` bytes (up to twice as many from a packed file); nothing at the end."""
        if self._unpacker is None:
            return self._file.read(size)
        parts, count = [], 0
        while count < size and not self._ended:
            part = self._unpack(size)
            parts.append(part)
            count += len(part)
        return b"".join(parts)

    def _unpack(self, size: int) -> bytes:
        assert self._unpacker is not None
        packed = self._packed or self._file.read(_PACKED)
        if not packed:
            self._ended = True
            self.cut = not self._unpacker.eof
            return b""
        if self._unpacker.eof:  # another member, as `cat a.gz b.gz` makes; anything else behind the end is padding
            if not packed.startswith(GZIP_MAGIC):
                self._ended = True
                return b""
            self._unpacker = zlib.decompressobj(wbits=31)
        try:
            part = self._unpacker.decompress(packed, size)
        except zlib.error:
            self._ended = self.cut = True
            return b""
        self._packed = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        return part


def open_file(path: Path) -> BinaryIO:
    """Return `path` opened for reading bytes. Raises BrokenInput when it cannot be."""
    try:
        if path.is_dir():
            raise BrokenInput(f"{path} is a folder", "name the trace files in it")
        return path.open("rb")
    except OSError as error:
        raise BrokenInput(f"cannot read the trace {path}: {error.strerror}", "check the path") from error
