"""Exports of Nsight Systems: sqlite of any version, and the CSV of `nsys stats`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from kernelwright.profiles.device_time import measure_device
from kernelwright.profiles.errors import BrokenInput
from kernelwright.profiles.nsys_csv import KernelSums, read_nsys_csv
from kernelwright.profiles.origin import trace_back
from kernelwright.profiles.trace import read_file, read_trace
from tests.profiles.test_answers import TRACES, needs_traces

PID, TID = 77, 78
GLOBAL = (PID << 24) | TID
WORK = "start, end, deviceId, streamId, correlationId, globalPid"
OP = "aten::mm, op_id = 7, seq = 3, sizes = [[2, 3], [3, 4]]"
NAMES = {1: "void gemm<int>(int)", 2: "cudaLaunchKernel_v7000", 3: "registered range", 4: "gemm"}


def export(folder: Path, suffix: str = "", *, drop: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> Path:
    """Write an export with one step of one op that launches one kernel, one copy, and a secret environment."""
    path = folder / "report.sqlite"
    path.unlink(missing_ok=True)
    statements = [
        "CREATE TABLE StringIds(id INTEGER, value TEXT)",
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL({WORK}, demangledName, shortName)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(2000, 2600, 0, 7, 5, {PID << 24}, 1, 4)",
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY({WORK}, bytes, copyKind)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(2500, 2900, 0, 8, 6, {PID << 24}, 4096, 1)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(1500, 1600, {GLOBAL}, 5, 2)",
        f"CREATE TABLE NVTX_EVENTS{suffix}(start, end, eventType, text, textId, globalTid)",
        f"INSERT INTO NVTX_EVENTS{suffix} VALUES(1000, 1900, 59, '{OP}', NULL, {GLOBAL})",
        f"INSERT INTO NVTX_EVENTS{suffix} VALUES(900, 2000, 60, NULL, 3, {GLOBAL})",
        f"INSERT INTO NVTX_EVENTS{suffix} VALUES(950, NULL, 59, 'open', NULL, {GLOBAL})",
        f"INSERT INTO NVTX_EVENTS{suffix} VALUES(960, NULL, 34, 'a mark', NULL, {GLOBAL})",
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV(name, value)",
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES('HF_TOKEN', 'hf_abcdefghijklmnopqrstuvwx')",
        "CREATE TABLE META_DATA_EXPORT(name, value)",
        "INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION_MAJOR', '3')",
        *more,
    ]
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            if not any(f" {name}" in statement for name in drop):
                database.execute(statement)
        database.executemany("INSERT INTO StringIds VALUES(?, ?)", NAMES.items())
        database.commit()
    return path


@pytest.mark.parametrize("suffix", ["", "_V2", "_V3"])
def test_an_export_is_read_whatever_its_version(tmp_path: Path, suffix: str) -> None:
    trace = read_trace(export(tmp_path, suffix))
    time = measure_device(trace)
    assert (time.kernels, time.kernel_ns, time.memops, time.memop_ns, time.busy_gpu_ns) == (1, 600, 1, 400, 900)
    assert time.top[0].name == NAMES[1] and time.kernels_with_no_launch_event == 0
    origin = trace_back(trace, np.flatnonzero(trace.is_kernel))
    assert trace.pool.names[trace.name[origin.op[0]]] == "aten::mm"
    assert trace.pool.names[trace.name[origin.step[0]]] == "registered range"
    assert trace.pool.inputs[trace.inputs[origin.op[0]]] == "[[[2, 3], [3, 4]], []]"
    assert trace.health.dropped == {"NVTX range that was still open at the end": 1}


def test_an_environment_in_an_export_is_not_read(tmp_path: Path) -> None:
    trace = read_trace(export(tmp_path))
    assert trace.health.unread_blocks == ("TARGET_INFO_SYSTEM_ENV",) and "hf_abc" not in repr(trace)


def test_without_kernels_an_export_says_why(tmp_path: Path) -> None:
    graphs = (
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start, end)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES(0, 3000000)",
    )
    trace = read_trace(
        export(tmp_path, drop=("CUPTI_ACTIVITY_KIND_KERNEL", "INTO CUPTI_ACTIVITY_KIND_KERNEL"), more=graphs)
    )
    assert any("--cuda-graph-trace=node" in note for note in trace.health.notes)
    assert any("no table of kernels" in note for note in trace.health.notes)


@pytest.mark.parametrize("fault", ["zeroed", "cut", "foreign", "report"])
def test_what_is_no_export_is_refused_with_a_remedy(tmp_path: Path, fault: str) -> None:
    path = export(tmp_path)
    content = path.read_bytes()
    if fault == "foreign":
        path.unlink()
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE cats(name)")
    else:
        path.write_bytes(
            {"zeroed": bytes(100) + content[100:], "cut": content[:2048], "report": b"NSYS" + content}[fault]
        )
    with pytest.raises(BrokenInput, match=r"report\.sqlite") as caught:
        read_trace(path)
    assert "nsys export" in caught.value.remedy


def test_text_where_a_number_belongs_costs_its_row(tmp_path: Path) -> None:
    rows = ("'soon', 9, 0, 7, 5, 1, 1, 4", "1, 9, 0, 7, 'x', 1, 1, 4")
    more = tuple(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES({row})" for row in rows)
    trace = read_trace(export(tmp_path, more=more))
    assert measure_device(trace).kernels == 1 and sum(trace.health.dropped.values()) == 3


@needs_traces
def test_a_recorded_export_gives_the_right_numbers() -> None:
    right = json.loads((TRACES / "ANSWERS.json").read_text())["nsys_h100_2gpu.sqlite"]
    trace = read_trace(TRACES / "nsys_h100_2gpu.sqlite")
    time = measure_device(trace)
    names = ("kernels", "kernel_ns", "distinct_names", "memops", "memop_ns", "streams", "kernels_with_no_launch_event")
    assert {n: getattr(time, n) for n in names} == {n: right[n] for n in names}
    assert [[k.name[:120], k.count, k.ns] for k in time.top[:5]] == right["top5"]
    assert {f"dev{name}": one.model_dump() for name, one in time.per_device.items()} == {
        f"dev{i}": right[f"dev{i}"] for i in (0, 1)
    }
    assert trace.kinds.get("cpu_op", 0) + trace.kinds.get("user_annotation", 0) == right["nvtx"]


SUM_2026 = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
SUM_2022 = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name"
SUM_2021 = "Time(%),Total Time,Instances,Average,Minimum,Maximum,Name"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (SUM_2026, '60.0,"1,200",3,400.0,400.0,1,2,0.1,"void k<a, b>(int)"'),
        (SUM_2022, '60.0,1200,3,400.0,400.0,1,2,0.1,"1 1 1","2 1 1","void k<a, b>(int)"'),
        (SUM_2021, '60.0,1200,3,400.0,1,2,"void k<a, b>(int)"'),
        (SUM_2026.replace("Total Time (ns)", "Total Time (us)"), '60.0,1.2,3,0.4,0.4,1,2,0.1,"void k<a, b>(int)"'),
    ],
)
@pytest.mark.parametrize(
    "talk", ["", "Generating SQLite file x.sqlite\nProcessing [x] with [y]...\n\n ** CUDA GPU Kernel Summary:\n\n"]
)
def test_sums_of_any_age_are_read(header: str, row: str, talk: str) -> None:
    sums = read_nsys_csv(f"{talk}{header}\n{row}\nbroken,row\n")
    assert isinstance(sums, KernelSums)
    assert [(k.name, k.count, k.ns) for k in sums.kernels] == [("void k<a, b>(int)", 3, 1200)]
    assert sum(sums.health.dropped.values()) == 1


def test_a_csv_of_single_kernels_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Device,Strm,Name\n"
        "100,50,1,1,,NVIDIA H100 (0),7,void k(int)\n120,10,2,,0.5,NVIDIA H100 (0),8,[CUDA memcpy Host-to-Device]\n"
    )
    trace = read_trace(path)
    time = measure_device(trace)
    assert (time.kernels, time.kernel_ns, time.memops, time.busy_gpu_ns, time.streams) == (1, 50, 1, 50, 1)
    assert trace.size.tolist() == [-1, 500_000]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", f"{SUM_2026}\n", f"{SUM_2026}\n1,2,3,4,5,6,7,8,{'x' * 140_000}\n"])
def test_a_csv_without_kernels_is_refused(text: str) -> None:
    with pytest.raises(BrokenInput):
        read_nsys_csv(text)


@needs_traces
@pytest.mark.parametrize("name", ["all-stage", "prefill", "decode"])
def test_recorded_sums_are_right(name: str) -> None:
    key = f"nsys_csv/{name}.cuda_gpu_kern_sum.csv"
    right = json.loads((TRACES / "ANSWERS.json").read_text())[key]
    sums = read_file(TRACES / key)
    assert isinstance(sums, KernelSums)
    assert sum(k.ns for k in sums.kernels) == right["total_ns"]
    assert sum(k.count for k in sums.kernels) == right["instances"]
