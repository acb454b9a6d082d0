"""The step that is drawn: one of median length, of the phase that takes longest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernelwright.profiles.attribution import Work, attribute_work
from kernelwright.profiles.one_step import choose_step
from kernelwright.profiles.trace import read_trace
from kernelwright.profiles.window import Window, summarise_window

DECODE = "execute_context_0(0)_generation_1(1)"


def attributed(folder: Path, *kernels: tuple[str, float, str]) -> Work:
    """Kernels (name, us) one behind the other, each launched in a range of its own where one is named."""
    events: list[dict[str, Any]] = []
    at = 100_000.0
    for i, (name, us, step) in enumerate(kernels, 1):
        launch = {"ph": "X", "pid": 1, "tid": 1, "ts": 10.0 * i, "args": {"correlation": i}}
        events.append(launch | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1})
        if step:
            events.append(launch | {"cat": "user_annotation", "name": step, "dur": 5})
        args = {"correlation": i, "stream": 7}
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": us, "args": args})
        at += us + 1
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return attribute_work(read_trace(path))


def test_of_the_longest_phase_the_step_of_median_length(tmp_path: Path) -> None:
    work = attributed(
        tmp_path, ("p", 9, "execute_context_1(5)_generation_0(0)"), *[("d", t, DECODE) for t in (9, 5, 7)]
    )
    entries, name = choose_step(work)
    assert (entries.tolist(), name) == ([3], DECODE)


def test_where_no_range_names_a_step_one_round_of_a_sequence(tmp_path: Path) -> None:
    rounds = [(name, us, "") for us in (1, 3, 2) for name in "abcde"]
    entries, name = choose_step(attributed(tmp_path, ("load", 50, ""), *rounds))
    assert entries.tolist() == [11, 12, 13, 14, 15]
    assert name == "sequence 1 of 5 kernels, round 3 of 3"


def test_a_step_that_launched_nothing_is_none(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    step = {"ph": "X", "cat": "user_annotation", "name": DECODE, "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    launch = step | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 90, "args": {"correlation": 1}}
    kernel = launch | {"cat": "kernel", "name": "k", "pid": 0, "ts": 100, "args": {"correlation": 1, "stream": 7}}
    for events in ([step, launch, kernel], [step, kernel]):
        path.write_text(json.dumps({"traceEvents": events}))
        entries, name = choose_step(attribute_work(read_trace(path)))
        assert (entries.tolist(), name) == ([0], "all of the trace")


def test_a_window_s_partial_rounds_are_not_chosen(tmp_path: Path) -> None:
    work = attributed(tmp_path, *[(name, us, "") for us in (9, 1, 2, 3, 9) for name in "abcde"])
    first = int(work.events.ts[work.origin.work].min())
    part = summarise_window(work, work.events, Window(first + 25_000, first + 100_000))[1]
    entries, name = choose_step(part)
    assert [work.events.pool.names[n] for n in part.names[entries]] == list("abcde") and len(entries) == 5
    assert int(part.ns[entries].sum()) == 10_000 and name.startswith("sequence 1 of 5 kernels")


def test_without_either_it_is_all_there_is(tmp_path: Path) -> None:
    entries, name = choose_step(attributed(tmp_path, ("a", 1, ""), ("b", 2, "")))
    assert (entries.tolist(), name) == ([0, 1], "all of the trace")
