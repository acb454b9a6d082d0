"""Records of rocprofv3's JSON, and the tables of a process that they refer to, as rows of an event table."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import msgspec

from kernelwright.profiles.rows import Row

_Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""ns; the largest number, which stands for an unknown time, is none."""
_MOST = 1 << 62


class _Handle(msgspec.Struct):
    handle: int = 0


class _Correlation(msgspec.Struct):
    internal: int = 0


class _Dispatch(msgspec.Struct):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = 0


class Record(msgspec.Struct):
    start_timestamp: _Time = 0
    end_timestamp: _Time = 0
    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    bytes: int = -1


class _Symbol(msgspec.Struct):
    kernel_id: int = 0
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""


class Agent(msgspec.Struct):
    id: _Handle = msgspec.field(default_factory=_Handle)
    name: str = ""
    product_name: str = ""
    type: int = 0
    logical_node_type_id: int = 0


class _Names(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class _Strings(msgspec.Struct):
    buffer_records: list[_Names] = []


class _Metadata(msgspec.Struct):
    pid: int = 0


TABLES: dict[str, Any] = {
    "metadata": _Metadata, "agents": list[Agent], "strings": _Strings, "kernel_symbols": list[_Symbol],
}  # fmt: skip
"""By the key of a process. Of `metadata` its command line, environment and host are not read."""
LISTS = ("kernel_dispatch", "memory_copy", "hip_api", "hip_runtime_api", "rccl_api")
"""Lists of records that are read, by the key of `buffer_records`."""

NameKey = tuple[int, str, int, int]
"""(process, `kernel` or `call`, and which): stands for a name whose table may come later."""


class Process:
    """What a file says of process `number` of its list: `tables` by key, as they are read."""

    def __init__(self, number: int) -> None:
        self.tables: dict[str, Any] = {}
        self._number = number

    @property
    def gpus(self) -> list[Agent]:
        return [agent for agent in self.tables.get("agents", ()) if agent.type == 2 or "gfx" in agent.name]

    @cached_property
    def _pid(self) -> int:
        return int(self.tables["metadata"].pid) if "metadata" in self.tables else self._number

    @cached_property
    def _devices(self) -> dict[int, int]:
        return {agent.id.handle: i for i, agent in enumerate(self.gpus)}

    def names(self) -> dict[NameKey, str]:
        """Return what the keys of this process's rows stand for."""
        symbols = {
            (self._number, "kernel", s.kernel_id, 0): (
                s.formatted_kernel_name or s.demangled_kernel_name or s.kernel_name
            )
            for s in self.tables.get("kernel_symbols", ())
        }
        strings = self.tables["strings"].buffer_records if "strings" in self.tables else []
        calls = {
            (self._number, "call", kind, operation): name
            for kind, known in enumerate(strings)
            for operation, name in enumerate(known.operations)
        }
        return {**symbols, **calls}

    def row(self, kind: str, record: Record) -> Row:
        """Return the row of a record of the list `kind`; its name is a NameKey."""
        span = record.start_timestamp, record.end_timestamp - record.start_timestamp
        correlation = record.correlation_id.internal if 0 < record.correlation_id.internal < _MOST else 0
        if kind == "kernel_dispatch":
            work = record.dispatch_info or _Dispatch()
            device = self._devices.get(work.agent_id.handle, work.agent_id.handle)
            stream = record.stream_id.handle if record.stream_id else work.queue_id.handle
            key = (self._number, "kernel", work.kernel_id, 0)
            return Row("kernel", key, (self._gpu(device), stream), *span, correlation, track=(device, stream))
        call = (self._number, "call", record.kind, record.operation)
        if kind == "memory_copy":
            ends = [agent.handle for agent in (record.dst_agent_id, record.src_agent_id) if agent]
            device = next((self._devices[handle] for handle in ends if handle in self._devices), 0)
            return Row(
                "gpu_memcpy", call, (self._gpu(device), "copy"), *span, correlation, track=(device, "copy"),
                size=record.bytes if record.bytes < _MOST else -1,
            )  # fmt: skip
        lane = (f"[{self._pid}] {self._pid}", record.thread_id)
        if kind == "rccl_api":
            return Row("user_annotation", call, lane, *span)
        return Row("hip_runtime", call, lane, *span, correlation)

    def _gpu(self, device: int) -> str:
        return f"[{self._pid}] GPU {device}"


def spell(key: NameKey, names: dict[NameKey, str]) -> str:
    """Return the name that `key` stands for, its numbers where no table has it."""
    _, kind, first, second = key
    return names.get(key) or (f"kernel {first}" if kind == "kernel" else f"call {first}/{second}")
