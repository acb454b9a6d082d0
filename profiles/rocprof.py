"""Read the JSON of rocprofv3 (rocprofiler-sdk) into an event table.

Source of the format: `rocprofv3 --output-format json`: one record per process with `kernel_symbols`, `strings` (names
of API calls by kind and operation) and `buffer_records`; times are ns of one clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.events import Events
from kernelwright.profiles.health import Health
from kernelwright.profiles.rows import Row, RowColumns
from kernelwright.profiles.stream import ByteStream

_KEY = b'"rocprofiler-sdk-tool"'
REMEDY = "take the profile again with rocprofv3 --output-format json and let it finish"
_MOST_BYTES = 4 << 30


class _Handle(msgspec.Struct):
    handle: int = 0


class _Correlation(msgspec.Struct):
    internal: int = 0


class _Dispatch(msgspec.Struct):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = 0


class _Record(msgspec.Struct):
    start_timestamp: int = 0
    end_timestamp: int = 0
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


class _Agent(msgspec.Struct):
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


class _Records(msgspec.Struct):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    hip_runtime_api: list[_Record] = []
    rccl_api: list[_Record] = []


class _Metadata(msgspec.Struct):
    pid: int = 0


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = msgspec.field(default_factory=_Records)


class _File(msgspec.Struct):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


def is_rocprof(head: bytes) -> bool:
    """Return whether the beginning `head` of a file is rocprofv3's JSON."""
    return _KEY in head[:4096]


def read_rocprof(file: BinaryIO) -> Events:
    """Return kernels, copies and HIP calls. The command line, environment and host in the file are not read.

    The whole file is decoded at once, as its records refer to tables that stand anywhere in it. Raises BrokenInput
    when it is cut or otherwise no sound JSON.
    """
    stream, parts, size = ByteStream(file), list[bytes](), 0
    while part := stream.read(1 << 22):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise BrokenInput("rocprofv3 JSON of over 4 GB", "profile a shorter window")
    try:
        decoded = msgspec.json.decode(b"".join(parts), type=_File, strict=False)
    except msgspec.DecodeError as error:
        raise BrokenInput(f"rocprofv3 JSON that is cut or broken: {error}", REMEDY) from error
    columns, devices = RowColumns(), []
    for process in decoded.processes:
        for row in _rows(process):
            columns.add(row)
        devices += [
            {"name": agent.product_name or agent.name}
            for agent in process.agents
            if agent.type == 2 or "gfx" in agent.name
        ]
    return columns.finish({"writer": "rocprofv3", "deviceProperties": devices}, Health(unread_blocks=("metadata",)))


def _rows(process: _Process) -> Iterator[Row]:
    pid, records = process.metadata.pid, process.buffer_records
    symbols = {
        s.kernel_id: s.formatted_kernel_name or s.demangled_kernel_name or s.kernel_name for s in process.kernel_symbols
    }
    gpus = [agent.id.handle for agent in process.agents if agent.type == 2 or "gfx" in agent.name]
    numbers = {handle: i for i, handle in enumerate(gpus)}
    names = process.strings.buffer_records

    def call_name(record: _Record) -> str:
        known = names[record.kind].operations if record.kind < len(names) else []
        return known[record.operation] if record.operation < len(known) else f"call {record.kind}/{record.operation}"

    def span(record: _Record) -> tuple[int, int]:
        return record.start_timestamp, record.end_timestamp - record.start_timestamp

    for record in records.kernel_dispatch:
        work = record.dispatch_info or _Dispatch()
        device = numbers.get(work.agent_id.handle, work.agent_id.handle)
        stream = record.stream_id.handle if record.stream_id else work.queue_id.handle
        name = symbols.get(work.kernel_id, f"kernel {work.kernel_id}")
        lane = (f"[{pid}] GPU {device}", stream)
        yield Row("kernel", name, lane, *span(record), record.correlation_id.internal, track=(device, stream))
    for record in records.memory_copy:
        device = next(
            (numbers[a.handle] for a in (record.dst_agent_id, record.src_agent_id) if a and a.handle in numbers), 0
        )
        yield Row(
            "gpu_memcpy", call_name(record), (f"[{pid}] GPU {device}", "copy"), *span(record),
            record.correlation_id.internal, track=(device, "copy"), size=record.bytes,
        )  # fmt: skip
    for record in records.hip_api:
        correlation = record.correlation_id.internal
        yield Row("hip_runtime", call_name(record), (f"[{pid}] {pid}", record.thread_id), *span(record), correlation)
    for record in records.rccl_api:
        yield Row("user_annotation", call_name(record), (f"[{pid}] {pid}", record.thread_id), *span(record))
