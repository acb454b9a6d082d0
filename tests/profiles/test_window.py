"""A window of a trace holds what ran in it, for as long as it did: windows side by side add up to the whole."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.profiles.attribution import attribute_work
from kernelwright.profiles.devices import Device, name_device
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.events import Events
from kernelwright.profiles.summary import TraceSummary, summarise
from kernelwright.profiles.trace import read_trace
from kernelwright.profiles.window import Window, parse_window, summarise_window
from kernelwright.tui.cli import main
from tests.profiles.test_answers import TRACES, needs_traces


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    pid = 0 if cat == "kernel" else 1
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "args": args}


def write(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def gpu(folder: Path) -> Path:
    """Two kernels of 10 us, 10 us between them, launched in one step before either runs."""
    return write(
        folder, event("user_annotation", "execute_context_1(5)_generation_0(0)", 1000, 10),
        event("cuda_runtime", "cudaLaunchKernel", 1001, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 1003, 1, correlation=2),
        event("kernel", "a", 1010, 10, correlation=1, stream=7),
        event("kernel", "b", 1030, 10, correlation=2, stream=7),
    )  # fmt: skip


def cut(events: Events, text: str, device: Device | None = None) -> TraceSummary:
    return summarise_window(attribute_work(events), events, parse_window(text, events), device)[0]


def test_work_is_cut_where_the_window_is_and_keeps_its_phase(tmp_path: Path) -> None:
    found = cut(read_trace(gpu(tmp_path)), "0.015:0.035")
    assert found.window_ns == (15_000, 35_000)
    assert [(k.name, k.ns) for k in found.time.top] == [("a", 5000), ("b", 5000)]
    assert (found.time.gpu_span_ns, found.time.idle_fraction) == (20_000, 0.5)
    assert found.phases["prefill"].kernels == 2 and found.time.kernels_with_no_launch_event == 0
    assert found.gaps.ns == 10_000


def test_what_ran_outside_is_left_out(tmp_path: Path) -> None:
    found = cut(read_trace(gpu(tmp_path)), "0.025:")
    assert [(k.name, k.count, k.ns) for k in found.time.top] == [("b", 1, 10_000)]
    assert [t.name for t in found.targets] == ["b"]


def test_what_a_call_must_do_is_shared_by_its_time_in_the_window(tmp_path: Path) -> None:
    """A window shows the headroom of the whole: of a fifth of a kernel a fifth of the least time is there."""
    dims = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 2}
    events = read_trace(write(
        tmp_path, event("cpu_op", "aten::mm", 0, 50, **dims),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=2),
        event("kernel", "a", 1000, 500, correlation=1, stream=7),
        event("kernel", "b", 1500, 500, correlation=2, stream=7),
    ))  # fmt: skip
    h100 = name_device("H100")
    whole = summarise(events, device=h100).targets[0].headroom
    assert whole is not None and whole > 1
    for text, count in (("1.1:1.2", 1), (":1.5", 1), ("1.4:1.6", 2)):
        assert [t.headroom for t in cut(events, text, h100).targets] == pytest.approx([whole] * count)


def test_an_op_keeps_in_a_window_what_the_whole_trace_tells_of_it(tmp_path: Path) -> None:
    """`outer` runs from 0 to 100 us, `inner` in it from 20 to 60; a step begins at 50."""
    events = read_trace(write(
        tmp_path, event("cpu_op", "outer", 0, 100), event("cpu_op", "inner", 20, 40),
        event("user_annotation", "execute_context_1(5)_generation_0(0)", 50, 200),
    ))  # fmt: skip
    found = cut(events, "0.05:")
    assert found.cpu is not None and found.device == "cpu"
    assert {k.name: k.ns for k in found.cpu.top} == {"outer": 40_000, "inner": 10_000}
    assert (found.cpu.busy_ns, found.cpu.span_ns, found.time.gpu_span_ns) == (50_000, 200_000, 0)
    assert list(found.phases) == ["outside"], "both began before the step did"
    empty = cut(events, "0.15:")
    assert empty.device == "cpu" and empty.cpu is not None and empty.cpu.ops == 0


ops = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 60)), min_size=1, max_size=12)


@given(ops, st.lists(st.integers(1, 149), min_size=1, max_size=3, unique=True))
def test_self_times_of_windows_side_by_side_add_up(spans: list[tuple[int, int]], edges: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [event("cpu_op", f"op{i}", ts, dur) for i, (ts, dur) in enumerate(spans)]
        events = read_trace(write(Path(folder), *rows, event("user_annotation", "all", 0, 150)))
    work = attribute_work(events)
    sums = Counter[str]()
    for a, b in itertools.pairwise([0, *sorted(edges), 150]):
        found = summarise_window(work, events, Window(a * 1000, b * 1000))[0]
        assert found.cpu is not None
        sums.update({k.name: k.ns for k in found.cpu.top})
    whole = summarise(events).cpu
    assert whole is not None and {k.name: k.ns for k in whole.top} == {k.name: sums[k.name] for k in whole.top}


kernels = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30), st.integers(7, 8)), min_size=1, max_size=12)


@given(kernels, st.lists(st.integers(1, 149), max_size=3, unique=True))
def test_device_times_of_windows_side_by_side_add_up(rows: list[tuple[int, int, int]], edges: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = [event("kernel", f"k{i}", ts, dur, stream=s) for i, (ts, dur, s) in enumerate(rows, 1)]
        events = read_trace(write(Path(folder), event("user_annotation", "all", 0, 150), *found))
    whole, sums, counts = summarise(events).time, [0, 0], Counter[str]()
    texts = [f"{a / 1e3}:{b / 1e3}" for a, b in itertools.pairwise([0, *sorted(edges), 150])]
    for text in texts:
        time = cut(events, text).time
        sums = [x + y for x, y in zip(sums, (time.kernel_ns, time.busy_gpu_ns), strict=True)]
        counts.update(k.name for k in time.top)
    assert sums == [whole.kernel_ns, whole.busy_gpu_ns]
    assert set(counts) == {k.name for k in whole.top}
    assert all(counts[k.name] == 1 for k in whole.top if k.ns == 0), "a moment is in one window"


@needs_traces
def test_replays_in_a_window_are_counted_there() -> None:
    events = read_trace(TRACES / "vllm_rocm_decode_graph.json.gz")
    whole = summarise(events)
    parts = [cut(events, text) for text in (":5", "5:")]
    assert sum(p.graphs.kernel_ns for p in parts) == whole.graphs.kernel_ns == whole.replayed_ns
    assert all(p.graphs.kernel_ns == p.replayed_ns for p in parts)


@pytest.mark.parametrize("text", ["", "5", "a:b", "-1:2", "5:5", "9999:", "0.03:0.01", ":" + "9" * 400])
def test_what_is_no_window_of_the_trace_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongUse):
        parse_window(text, read_trace(gpu(tmp_path)))


def test_the_command_states_its_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(gpu(tmp_path)), "--window", ":0.02", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["window_ns"], record["kernels"], record["kernel_ns"]) == ([0, 20_000], 1, 10_000)
    assert main(["profile", str(gpu(tmp_path)), "--window", ":0.02"]) == 0
    assert "from 0.000 to 0.020 ms of the trace" in capsys.readouterr().out
