"""Mailboxes: sealed shared memory between the supervisor and a runner, and the doorbells beside them.

Three kinds of memory cross. Weights: written once, then sealed against all writing. Inputs: the supervisor keeps the
one writable mapping; the seal F_SEAL_FUTURE_WRITE lets the runner map it for reading only, whatever it tries. Outputs
(and inputs that a slot writes in place): writable by both, every tensor between guard zones, poisoned before each
call. Source: memfd_create(2), fcntl(2) "File Sealing".
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ALIGN = 64
GUARD = 4096
F_SEAL_FUTURE_WRITE = 0x0010


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in a mailbox."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        from kernelwright.kernels.definition import DTYPES

        count = DTYPES[self.dtype]
        for size in self.shape:
            count *= size
        return count

    def to_json(self) -> list[object]:
        return [self.offset, list(self.shape), self.dtype]


class Layout:
    """Hands out places from the front of a mailbox; each is aligned and, where asked, between guard zones."""

    def __init__(self, start: int = 0, guard: int = 0) -> None:
        self._next = start
        self._guard = guard

    def place(self, shape: tuple[int, ...], dtype: str) -> Place:
        """Return the next free place for a tensor of `shape`."""
        place = Place(_round_up(self._next + self._guard), shape, dtype)
        self._next = place.offset + place.num_bytes + self._guard
        return place

    @property
    def end(self) -> int:
        return _round_up(self._next)


class Mailbox:
    """One memory file and the supervisor's mapping of it."""

    def __init__(self, name: str, num_bytes: int) -> None:
        self.num_bytes = max(mmap.PAGESIZE, -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.num_bytes)
        self._map: mmap.mmap | None = mmap.mmap(self.fd, self.num_bytes, mmap.MAP_SHARED)

    @property
    def memory(self) -> mmap.mmap:
        if self._map is None:
            raise ValueError("the mailbox is closed or was sealed for reading")
        return self._map

    def seal_size(self) -> None:
        """Fix the size for good: no process can shrink it below us (a read would then fault) or grow it."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)

    def seal_inputs(self) -> None:
        """Fix the size, and forbid every writable mapping or write but through the mapping that exists now."""
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def seal_contents(self) -> None:
        """Give up our own mapping and forbid all writing from now on."""
        self.memory.close()
        self._map = None
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def fill_and_seal(self, content: bytes) -> None:
        """Make `content` the whole of the file and seal it for good."""
        os.ftruncate(self.fd, len(content))
        os.pwrite(self.fd, content, 0)
        self.seal_contents()

    def write(self, place: Place, tensor: torch.Tensor) -> None:
        """Copy `tensor` to `place`; shape and dtype must agree (ValueError)."""
        if tuple(tensor.shape) != place.shape or str(tensor.dtype).removeprefix("torch.") != place.dtype:
            raise ValueError(f"tensor {tuple(tensor.shape)} {tensor.dtype} does not fit {place}")
        if place.num_bytes:
            view_tensor(self.memory, place).copy_(tensor)

    def read(self, place: Place) -> torch.Tensor:
        """Return a private copy of what lies at `place` now."""
        return view_tensor(self.memory, place).clone()

    def view(self, place: Place) -> torch.Tensor:
        """Return the shared memory at `place` itself."""
        return view_tensor(self.memory, place)

    def close(self) -> None:
        """Close the descriptor; the mapping goes with its last tensor view."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._map = None


def view_tensor(memory: mmap.mmap, place: Place) -> torch.Tensor:
    """Return a tensor over mapped memory, without a copy."""
    import torch

    dtype = getattr(torch, place.dtype)
    if place.num_bytes == 0:
        return torch.empty(place.shape, dtype=dtype)
    count = place.num_bytes // dtype.itemsize
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=place.offset).view(place.shape)


class Doorbell:
    """An event descriptor. `ring` adds one; `wait` blocks (never spins) and takes one."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)

    def wait(self, timeout_s: float, pidfd: int) -> str:
        """Return 'rung', 'died' (the process behind `pidfd` has ended) or 'timeout'."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0, round(timeout_s * 1000)))}
        if self.fd in ready:
            os.eventfd_read(self.fd)
            return "rung"
        return "died" if pidfd in ready else "timeout"

    def drain(self) -> int:
        """Take what is there without blocking; return how many rings that were."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        count = 0
        while poll.poll(0):
            os.eventfd_read(self.fd)
            count += 1
        return count

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _round_up(offset: int) -> int:
    return -(-offset // ALIGN) * ALIGN
