"""The untrusted side: loads one candidate and calls it when the doorbell rings. Nothing it says is believed.

Run inside a cage as `python -P -m kernelwright.sandbox.runner CONTROL`, CONTROL being the descriptor of a unix socket.
The first process loads the libraries and says so. For each launch it is sent the descriptors of fresh mailboxes and
bells, and forks: the child is the runner, the parent waits for its end. So a launch has a process and mailboxes of its
own, without loading libraries again; all launches of one cage are launches of one candidate.
The job (JSON in a sealed memory file) holds places and shapes; it holds no seed, phase, tolerance, count, reference or
expected value. Protocol of a runner, through the header of the input mailbox and two event descriptors:

    runner waits for the bell, reads the job, rings "loaded" once every weight set is bound
    PLAN  header holds JSON: the calls to come, by place → tensor views are built → ring. Where nothing is timed it may
          name the order in which Triton's interpreter runs blocks, or a byte that fills the heap
    WARM  use the threads once, so that they are awake as an engine's are → ring; the inputs of GO are written after it
    GO    call each planned slot as the engine does → ring "done" → (incumbent: copy results out, ring "copied")

A native candidate writes its outputs into the mailbox itself. Results of a python candidate are copied before "done".
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import random
import socket
import struct
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.sandbox.mailbox import Place, view_tensor
from kernelwright.sandbox.preload import complete, load_torch

if TYPE_CHECKING:
    import torch

    from kernelwright.kernels.load import BoundSlot

HEADER = struct.Struct("<QQ")
"""opcode, bytes of JSON that follow"""
HEADER_BYTES = 1 << 18
PLAN, WARM, GO = 1, 2, 3
READY, FORKED = b"r", b"f"
MESSAGE_BYTES, MAX_FDS = 1024, 16


_kept: list[mmap.mmap] = []


class Runner:
    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._inputs = _map(job["inputs_fd"], writable=job["inputs_writable"])
        self._outputs = _map(job["outputs_fd"], writable=True)
        self._weights = _map(job["weights_fd"], writable=False)
        self._calls: list[tuple[BoundSlot, list[Any], tuple[torch.Tensor, ...]]] = []
        self._heap_fill = 0
        self._slots = self._bind()

    def serve(self) -> None:
        """Answer the doorbell until killed."""
        self._ring()
        while True:
            os.eventfd_read(self._job["bell_fd"])
            opcode, length = HEADER.unpack_from(self._inputs)
            if opcode == GO:
                self._go()
                continue
            if opcode == PLAN:
                self._plan(json.loads(self._inputs[HEADER.size : HEADER.size + length]))
            else:
                self._warm()
            self._ring()

    def _bind(self) -> list[BoundSlot]:
        from kernelwright.kernels.candidate import Candidate
        from kernelwright.kernels.definition import Definition, SlotContract
        from kernelwright.kernels.load import load_implementation

        candidate = Candidate.model_validate(self._job["candidate"])
        if candidate.language == "python":
            complete(candidate.sources[0].content)
        binary = _binary_path(self._job["code_fd"]) if self._job["has_code"] else None
        definition = Definition.model_validate(self._job["definition"])
        contract = SlotContract.model_validate(self._job["contract"])
        implementation = load_implementation(candidate, binary, definition, contract)
        self._native = candidate.language != "python"  # it writes its outputs itself
        return [implementation.bind(_views(self._weights, weights)) for weights in self._job["weight_sets"]]

    def _plan(self, plan: dict[str, Any]) -> None:
        import torch

        if plan["threads"] != torch.get_num_threads():
            torch.set_num_threads(plan["threads"])
        if plan["block_order"]:
            from kernelwright.kernels.triton_load import set_block_order

            set_block_order(plan["block_order"])
        if plan["heap_fill"] != self._heap_fill:
            self._heap_fill = plan["heap_fill"]
            _fill_heap(self._heap_fill)
        self._calls = []
        for call in plan["calls"]:
            slot = self._slots[call["slot"]]
            inputs = {
                **_views(self._inputs, call["inputs"]),
                **_views(self._outputs, call["aliased"]),
                **call["scalars"],
            }
            outputs = tuple(_views(self._outputs, call["outputs"]).values())
            self._calls.append((slot, [inputs[name] for name in slot.names], outputs))

    def _warm(self) -> None:
        import torch

        torch.ones(1 << 18).add_(1)  # large enough for torch to share it out among the threads that kernels use, too

    def _go(self) -> None:
        if self._native:
            self._go_native()
            return
        results = [slot.call(*inputs) for slot, inputs, _ in self._calls]
        if self._job["copy_late"]:
            self._ring()
        for (_, _, outputs), result in zip(self._calls, results, strict=True):
            for place, tensor in zip(outputs, result, strict=True):
                _copy_exactly(place, tensor)
        self._ring()

    def _go_native(self) -> None:
        import torch

        for slot, inputs, outputs in self._calls:
            for output in outputs:  # what the engine pays for the outputs it allocates
                torch.empty(output.shape, dtype=output.dtype)
            slot.call_into(outputs, *inputs)
        self._ring()

    def _ring(self) -> None:
        os.eventfd_write(self._job["reply_fd"], 1)


def _copy_exactly(place: torch.Tensor, result: torch.Tensor) -> None:
    # no conversion: a wrong shape or dtype must not be repaired on the way out
    if result.shape != place.shape or result.dtype != place.dtype:
        raise TypeError(f"output is {tuple(result.shape)} {result.dtype}, not {tuple(place.shape)} {place.dtype}")
    place.copy_(result)


def _binary_path(fd: int) -> Path:
    """Return a path that loads the sealed memory file `fd`; the loader wants a name that ends in .so."""
    link = Path(tempfile.mkdtemp()) / "kernel.so"
    link.symlink_to(f"/proc/self/fd/{fd}")
    return link


def _map(fd: int, *, writable: bool) -> mmap.mmap:
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, access)


def _views(memory: mmap.mmap, places: dict[str, list[Any]]) -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that read-only memory must not be written; that is the point
        return {n: view_tensor(memory, Place(offset, tuple(s), dtype)) for n, (offset, s, dtype) in places.items()}


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _load_libraries()
    _set_dumpable(False)  # a launch must not reach into the process that forks the next one
    control.sendall(READY)
    while True:
        message, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, MAX_FDS)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _set_dumpable(True)
            _run(dict(zip(json.loads(message), fds, strict=True)))
        for fd in fds:
            os.close(fd)
        control.sendall(FORKED)
        os.waitpid(pid, 0)


def _load_libraries() -> None:
    """Load everything heavy before any job is known. Collecting garbage meanwhile would take a sixth of the time."""
    gc.disable()
    load_torch()
    import tvm_ffi  # noqa: F401

    import kernelwright.kernels.load  # noqa: F401

    gc.freeze()
    gc.enable()


def _shift_addresses(layout: int) -> None:
    """Take some memory for good, so that what is allocated from now on lies elsewhere, on the heap and in mappings.

    Where things lie moves the time of a short kernel by 5 %. Two arms of one layout are moved alike as far as they are
    alike; a layout for each launch makes of what is left a difference between launches, which the statistics see.
    """
    rng = random.Random(layout)
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    for _ in range(4):
        malloc(64 * rng.randrange(1, 1 << 12))
    _kept.append(mmap.mmap(-1, mmap.PAGESIZE * rng.randrange(1, 1 << 10)))


def _fill_heap(byte: int) -> None:
    """Fill what malloc gives and free takes with a pattern made from `byte` from now on; 0 stops it.

    Source: mallopt(3), M_PERTURB. Where the libc has none, nothing is filled.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-6, byte)


def _set_dumpable(allowed: bool) -> None:
    """Say whether other processes of this user may open this one's memory (prctl(2), PR_SET_DUMPABLE)."""
    ctypes.CDLL(None).prctl(4, int(allowed), 0, 0, 0)


def _run(fds: dict[str, int]) -> None:
    """Be the runner of one launch, and end."""
    import torch

    status = 1
    try:
        os.eventfd_read(fds["bell_fd"])
        length = os.fstat(fds["job_fd"]).st_size
        job = {**fds, **json.loads(os.pread(fds["job_fd"], length, 0))}
        _shift_addresses(job["layout"])
        torch.set_num_threads(job["threads"])
        with torch.inference_mode():
            Runner(job).serve()
        status = 0
    except BaseException:  # whatever a candidate throws ends its launch, and its log says what it was
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
