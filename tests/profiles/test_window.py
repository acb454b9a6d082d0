"""A window of a trace holds what ran in it, for as long as it did: windows side by side add up to the whole."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.profiles.attribution import attribute_work
from kernelwright.profiles.errors import WrongUse
from kernelwright.profiles.events import Events
from kernelwright.profiles.summary import TraceSummary, summarise, summarise_work
from kernelwright.profiles.trace import read_trace
from kernelwright.profiles.window import Window, cut_ops, cut_work, first_ns, parse_window
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


def cut(events: Events, text: str) -> TraceSummary:
    window = parse_window(text, events)
    work = cut_work(attribute_work(events), window)
    first = first_ns(events)
    return summarise_work(work, work.events, None, (window.start - first, window.end - first))


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


def test_an_op_is_cut_before_its_self_time_is_told(tmp_path: Path) -> None:
    """An op from 0 to 100 us holds one from 20 to 60: from 50 us on it runs for 40 itself."""
    events = read_trace(write(tmp_path, event("cpu_op", "outer", 0, 100), event("cpu_op", "inner", 20, 40)))
    found = summarise(cut_ops(events, parse_window("0.05:", events)))
    assert found.cpu is not None
    assert {k.name: k.ns for k in found.cpu.top} == {"outer": 40_000, "inner": 10_000}


@needs_traces
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 49_000_000), min_size=1, max_size=3, unique=True))
def test_windows_side_by_side_add_up(edges: list[int]) -> None:
    events = read_trace(TRACES / "h100_qwen_eager.json.gz")
    whole, work, first = summarise(events), attribute_work(events), first_ns(events)
    sums = [0, 0, 0]
    for a, b in itertools.pairwise([0, *sorted(edges), 10**9]):
        part = cut_work(work, Window(first + a, first + b))
        time = summarise_work(part, part.events).time
        sums = [x + y for x, y in zip(sums, (time.kernel_ns, time.busy_kernel_ns, time.busy_gpu_ns), strict=True)]
    assert sums == [whole.time.kernel_ns, whole.time.busy_kernel_ns, whole.time.busy_gpu_ns]


@pytest.mark.parametrize("text", ["", "5", "a:b", "-1:2", "5:5", "9999:", "0.03:0.01"])
def test_what_is_no_window_of_the_trace_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongUse):
        parse_window(text, read_trace(gpu(tmp_path)))


def test_the_command_states_its_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(gpu(tmp_path)), "--window", ":0.02", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["window_ns"], record["kernels"], record["kernel_ns"]) == ([0, 20_000], 1, 10_000)
    assert main(["profile", str(gpu(tmp_path)), "--window", ":0.02"]) == 0
    assert "from 0.000 to 0.020 ms of the trace" in capsys.readouterr().out
