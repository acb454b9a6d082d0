"""JSON of rocprofv3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelwright.profiles.device_time import measure_device
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.headroom import tell_gpu
from kernelwright.profiles.origin import find_launches
from kernelwright.profiles.rocprof import read_rocprof
from kernelwright.profiles.trace import read_trace
from tests.profiles.test_answers import TRACES, needs_traces


def record(kind: int, operation: int, correlation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind, "operation": operation, "correlation_id": {"internal": correlation, "external": 0},
        "start_timestamp": start, "end_timestamp": end, "thread_id": 12, **more,
    }  # fmt: skip


def process(pid: int) -> dict[str, Any]:
    dispatch = {"agent_id": {"handle": 5}, "queue_id": {"handle": 1}, "kernel_id": 9}
    copy = {"src_agent_id": {"handle": 4}, "dst_agent_id": {"handle": 5}, "bytes": 64}
    return {
        "metadata": {"pid": pid, "node": {"hostname": "secret-host"}, "command": ["hf_abcdefghijklmnopqrstuvwx"]},
        "agents": [
            {"id": {"handle": 4}, "type": 1, "name": "AMD EPYC", "product_name": "AMD EPYC"},
            {"id": {"handle": 5}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X"},
        ],
        "strings": {"buffer_records": [{"operations": ["x", "hipLaunchKernel"]}, {"operations": ["H2D"]}]},
        "kernel_symbols": [{"kernel_id": 9, "formatted_kernel_name": "void k<a>(int)"}],
        "buffer_records": {
            "kernel_dispatch": [record(3, 0, 7, 1000, 1600, dispatch_info=dispatch)],
            "memory_copy": [record(1, 0, 8, 1500, 1900, **copy)],
            "hip_api": [record(0, 1, 7, 900, 950)],
        },
    }  # fmt: skip


def write(folder: Path, *processes: dict[str, Any]) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}))
    return path


def test_dispatches_copies_and_calls_are_read(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, process(1)))
    time = measure_device(trace)
    assert (time.kernels, time.kernel_ns, time.memops, time.memop_ns, time.busy_gpu_ns) == (1, 600, 1, 400, 900)
    assert time.top[0].name == "void k<a>(int)" and time.kernels_with_no_launch_event == 0
    device = tell_gpu(trace)
    assert device is not None and device.name == "MI300X"
    assert "secret-host" not in repr(trace) and "hf_abc" not in repr(trace)


def test_ids_of_two_processes_are_two(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, process(1), process(2)))
    launches = find_launches(trace, np.flatnonzero(trace.is_kernel))
    assert len(set(launches.tolist())) == 2
    assert all(trace.lane[a] != trace.lane[b] for a, b in [launches])


def test_of_a_cut_file_all_whole_records_are_read(tmp_path: Path) -> None:
    content = process(1)
    path = write(tmp_path, content)
    text = path.read_text()
    records = [json.dumps(one) for listed in content["buffer_records"].values() for one in listed]
    ends = [text.index(record) + len(record) for record in records]
    for at in range(text.index('"kernel_symbols"'), len(text) - 1, 7):
        path.write_text(text[:at])
        trace = read_trace(path)
        assert trace.health.cut and len(trace) == sum(end <= at for end in ends)
    path.write_text(text[: text.index('"hip_api"')])
    assert [len(trace := read_trace(path)), measure_device(trace).kernel_ns] == [2, 600]


def test_a_broken_record_costs_no_other(tmp_path: Path) -> None:
    many = process(1)
    many["buffer_records"]["kernel_dispatch"] *= 40
    path = write(tmp_path, many)
    text = path.read_text()
    at = text.index('"start_timestamp"', len(text) // 2)
    path.write_text(text[:at] + '"start_timestamp": nonsense' + text[text.index(",", at) :])
    trace = read_trace(path)
    assert (trace.is_kernel.sum(), sum(trace.health.dropped.values()), trace.health.cut) == (39, 1, False)


def test_numbers_that_stand_for_nothing_cost_their_record_alone(tmp_path: Path) -> None:
    odd, most = process(1), 2**64 - 1
    dispatch = {"agent_id": {"handle": 5}, "queue_id": {"handle": 1}, "kernel_id": 9}
    odd["buffer_records"]["kernel_dispatch"] += [
        record(3, 0, most, 2000, 2100, dispatch_info=dispatch), record(3, 0, 8, 3000, most, dispatch_info=dispatch),
        record(3, 0, 9, 10**30, 1, dispatch_info=dispatch), record(3, 0, 10, 4000, 4100, dispatch_info=dispatch),
    ]  # fmt: skip
    odd["buffer_records"]["memory_copy"][0]["bytes"] = most
    trace = read_trace(write(tmp_path, odd))
    assert measure_device(trace).kernel_ns == 600 + 100 + 100 and sum(trace.health.dropped.values()) == 2
    assert trace.correlation[trace.is_kernel].tolist() == [7, 0, 10]
    assert trace.size[trace.is_memop].tolist() == [-1]


@pytest.mark.parametrize("count", [2, 12, 3000])
def test_records_with_lists_of_objects_are_whole(tmp_path: Path, count: int) -> None:
    many = process(1)
    argument = [{"name": "p", "value": "0x7f"}] * count
    calls = [record(0, 1, i, 10 * i, 10 * i + 5, args=argument) for i in range(1, max(600_000 // (30 * count), 4))]
    many["buffer_records"]["hip_api"] = calls
    trace = read_trace(write(tmp_path, many, process(2)))
    assert trace.is_launch.sum() == len(calls) + 1 and not trace.health.dropped and not trace.health.cut


def test_names_may_stand_behind_the_records(tmp_path: Path) -> None:
    late = process(1)
    late["kernel_symbols"] = [
        *late.pop("kernel_symbols"), {"kernel_id": 10, "formatted_kernel_name": "void k<a>(int)"},
    ]  # fmt: skip
    other = record(3, 0, 9, 2000, 2100, dispatch_info={"agent_id": {"handle": 5}, "kernel_id": 10})
    late["buffer_records"]["kernel_dispatch"].append(other)
    time = measure_device(read_trace(write(tmp_path, late)))
    assert [(k.name, k.count, k.ns) for k in time.top] == [("void k<a>(int)", 2, 700)]


def test_a_name_that_no_table_has_is_its_number(tmp_path: Path) -> None:
    bare = process(1)
    del bare["kernel_symbols"], bare["strings"]
    assert {"kernel 9", "call 1/0", "call 0/1"} == set(read_trace(write(tmp_path, bare)).pool.names)


def test_lists_longer_than_a_piece_are_read(tmp_path: Path) -> None:
    long = process(1)
    long["buffer_records"]["kernel_dispatch"] *= 2000
    long["callback_records"] = {"counter_collection": [{"a": [{"b": 1}, {"c": "}, {"}]}] * 100}
    time = measure_device(read_trace(write(tmp_path, long, process(2))))
    assert (time.kernels, time.kernel_ns, time.memops) == (2001, 2001 * 600, 2)


@pytest.mark.parametrize(
    "text", ['{"rocprofiler-sdk-tool": 1}', '{"rocprofiler-sdk-tool": [1]}', '["rocprofiler-sdk-tool"']
)
def test_what_holds_no_process_has_no_work(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with path.open("rb") as file:
        if text.startswith("["):
            with pytest.raises(BrokenInput, match="begin with an object"):
                read_rocprof(file)
        else:
            assert not len(read_rocprof(file))


@needs_traces
def test_a_recorded_file_gives_the_right_numbers() -> None:
    right = json.loads((TRACES / "ANSWERS.json").read_text())["rocprofv3_results.json.gz"]
    time = measure_device(read_trace(TRACES / "rocprofv3_results.json.gz"))
    names = ("kernels", "kernel_ns", "distinct_names")
    assert {n: getattr(time, n) for n in names} == {n: right[n] for n in names}
    for (name, count, ns), top in zip(right["top5"], time.top, strict=False):
        assert top.name.startswith(name.removesuffix("...")) and (top.count, top.ns) == (count, ns)
