"""Log: the end of what a cage prints, in bounded memory and on no disk, however much it prints."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time

KEEP_BYTES = 64 << 10
_CHUNK = 64 << 10
_PAUSE_S = 0.002
"""After a full chunk: a flood moves at some 30 MB/s at most, and what floods waits."""


class Log:
    """A pipe and a thread that drains it. Give `writer` to a cage, call `started` after that, `close` at the end."""

    def __init__(self, keep: int = KEEP_BYTES) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._keep = keep
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._quit = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._drain, name="kernelwright-log", daemon=True)

    def started(self) -> None:
        """Close our own writing end, now that the cage has its copy, and begin to drain."""
        os.close(self.writer)
        self.writer = -1
        self._thread.start()

    def text(self, limit: int) -> str:
        """Return the last `limit` bytes printed so far: diagnostics, never evidence."""
        deadline = time.monotonic() + 0.2
        while self._reader >= 0 and self._read_once() == _CHUNK and time.monotonic() < deadline:
            continue
        with self._lock:
            return bytes(self._kept[-limit:]).decode(errors="replace")

    def close(self) -> None:
        """Stop draining. Safe to call twice."""
        if self._reader < 0:
            return
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1
        else:
            os.eventfd_write(self._quit, 1)
            self._thread.join()
        for fd in (self._reader, self._quit):
            os.close(fd)
        self._reader = -1

    def _drain(self) -> None:
        poll = select.poll()
        for fd in (self._reader, self._quit):
            poll.register(fd, select.POLLIN)
        while True:
            if self._quit in {fd for fd, _ in poll.poll()}:
                return
            count = self._read_once()
            if count == 0:
                return
            if count == _CHUNK:
                time.sleep(_PAUSE_S)

    def _read_once(self) -> int:
        """Read what is there, at most a chunk; return its size, 0 at the end and -1 when nothing is there now."""
        with self._lock, contextlib.suppress(BlockingIOError):
            part = os.read(self._reader, _CHUNK)
            self._kept += part
            del self._kept[: -self._keep]
            return len(part)
        return -1

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
