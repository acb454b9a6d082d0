"""One columnar table for the events of any trace: numpy columns, times in integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kernelwright.profiles.health import Health

Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

KERNELS = frozenset({"kernel", "Kernel", "gpu_kernel"})
MEMOPS = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
LAUNCHES = frozenset({
    "cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "mtia_runtime", "privateuse1_runtime",
})  # fmt: skip
OPS = frozenset({"cpu_op", "Operator"})
RANGES = frozenset({"user_annotation"})
FRAMES = frozenset({"python_function"})
ARROWS = frozenset({"ac2g", "fwdbwd"})
NO_WORK = ARROWS | frozenset({
    "gpu_user_annotation", "overhead", "cuda_sync", "cuda_profiler_range", "cpu_instant_event", "Trace", "async",
    "async_gpu", "async_cpu_to_gpu", "",
})  # fmt: skip
"""Known categories that are neither work of a device nor of a host: marks, flows, the profiler's own cost."""
KNOWN = KERNELS | MEMOPS | LAUNCHES | OPS | RANGES | FRAMES | NO_WORK

Lane = tuple[int | str | None, int | str | None]


@dataclass(frozen=True, slots=True)
class Pool:
    """The texts that rows of the tables name by index."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    lanes: tuple[Lane, ...]
    """(process, thread) as the file names them."""
    streams: tuple[Lane, ...]
    """(process or device, stream) of device work."""
    inputs: tuple[str, ...] = ()
    """Shapes and types of an op's inputs as JSON text: `[shapes, types]`."""
    collectives: tuple[str, ...] = ()
    """What a collective moved, as JSON text."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Python frames, one row each: `path(line): function`, `nn.Module: Class_N`, `<built-in …>`."""

    name: Indices
    lane: Indices
    ts: Integers
    """Start, ns."""
    dur: Integers
    """Duration, ns."""

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(frozen=True)
class Events:
    """Complete events but Python frames, one row each; times in ns since the trace's own zero.

    A row of device work (`is_kernel`, `is_memop`) has a stream; `correlation` 0 is no id (ROCm writes it on
    collectives), stream 0 is a stream.
    """

    pool: Pool
    name: Indices
    category: Indices
    lane: Indices
    ts: Integers
    dur: Integers
    correlation: Integers
    """Id shared by a launch and its device work; 0: none."""
    external: Integers
    """`External id` of an op and of what it launched; 0: none."""
    stream: Indices
    """Index into `pool.streams`; -1 for host work."""
    inputs: Indices
    """Index into `pool.inputs`; -1: not recorded."""
    graph: Integers
    """Id of the CUDA/HIP graph a kernel was replayed from; 0: unknown or none."""
    captured: Indices
    """Index into `pool.names` of the kernel a launch names; -1: not named."""
    collective: Indices
    """Index into `pool.collectives`; -1: none."""
    size: Integers
    """Bytes moved by a memory operation; -1: unknown."""
    frames: Frames
    header: dict[str, object] = field(default_factory=dict)
    """What the file says of devices, ranks and how it was taken; never an environment."""
    labels: dict[int | str | None, str] = field(default_factory=dict)
    """Names of processes."""
    kinds: dict[str, int] = field(default_factory=dict)
    """All events of the file by category, `None` where they have none: also those that are no rows here."""
    flows: dict[str, int] = field(default_factory=dict)
    """Starts (`s`) and ends (`f`) of arrows between events."""
    health: Health = field(default_factory=Health)

    def __len__(self) -> int:
        return len(self.ts)

    def within(self, categories: frozenset[str]) -> Flags:
        """Return which rows are of one of `categories`; shape [len(self)]."""
        chosen = np.array([name in categories for name in self.pool.categories], np.bool_)
        return chosen[self.category] if len(chosen) else np.zeros(len(self), np.bool_)

    @property
    def num_events(self) -> int:
        """All events of the file that could be read."""
        return sum(self.kinds.values())

    @cached_property
    def is_kernel(self) -> Flags:
        return self.within(KERNELS)

    @cached_property
    def is_memop(self) -> Flags:
        return self.within(MEMOPS)

    @cached_property
    def is_launch(self) -> Flags:
        return self.within(LAUNCHES)

    @cached_property
    def end(self) -> Integers:
        return self.ts + self.dur
