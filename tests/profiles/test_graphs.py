"""Replayed kernels are followed to where their graph was captured."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kernelwright.profiles.attribution import Work, attribute_work
from kernelwright.profiles.graphs import align, capture_donor, find_captured
from kernelwright.profiles.lines import HOW
from kernelwright.profiles.trace import read_trace
from tests.profiles.test_answers import TRACES, needs_traces
from tests.profiles.test_origin import make, needs_maker

JOINS = {
    "vllm_rocm_decode_graph.json.gz": "vllm_rocm_decode_capture.json.gz",
    "vllm_rocm_prefilldecode_piecewise.json.gz": "vllm_rocm_piecewise_capture.json.gz",
}


def join(replay: str, capture: str) -> Work:
    donor = capture_donor(read_trace(TRACES / capture))
    assert donor is not None
    return attribute_work(read_trace(TRACES / replay), [donor])


def add_up(work: Work, column: str) -> list[list[object]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in np.flatnonzero(work.origin.replayed).tolist():
        name = work.lines.texts[getattr(work.lines, column)[entry]]
        sums[name][0] += 1
        sums[name][1] += int(work.ns[entry])
    return [[name, *both] for name, both in sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))]


@needs_traces
@pytest.mark.parametrize("replay", JOINS)
def test_a_replay_is_joined_with_its_capture(replay: str) -> None:
    capture = JOINS[replay]
    answers = json.loads((TRACES / "ANSWERS.json").read_text())
    key = next(k for k in answers if k.startswith("join") and k.endswith(f"-> {replay.removesuffix('.json.gz')}"))
    right = answers[key]
    work = join(replay, capture)
    assert len(find_captured(read_trace(TRACES / capture))) == right["captured_launches"]
    graphs = work.graphs
    assert (graphs.launches, graphs.kernels, graphs.kernel_ns) == (
        right["graph_launches"], right["graph_kernels"], right["graph_kernel_ns"],
    )  # fmt: skip
    assert graphs.joined == graphs.names_equal == right["names_equal_in_order"] and graphs.joined_ns == graphs.kernel_ns
    assert add_up(work, "frame")[:8] == right["innermost_python_file_frames"]
    assert add_up(work, "source")[:8] == right["engine_frames"]
    assert {HOW[h] for h in work.lines.how[work.origin.replayed]} == {"capture"}


@needs_traces
def test_a_capture_of_another_graph_tells_nothing() -> None:
    work = join("vllm_rocm_decode_graph.json.gz", "vllm_rocm_piecewise_capture.json.gz")
    assert work.graphs.joined < work.graphs.kernels
    assert not work.known[work.origin.replayed].all()


@needs_maker
def test_without_a_capture_replayed_kernels_stay_visibly_without_a_line(tmp_path: Path) -> None:
    trace, right = make(tmp_path, "--graph-decode", "--seed", "3")
    work = attribute_work(trace)
    assert work.graphs.kernels == right["graph_kernels"] and work.graphs.joined == 0
    assert not work.known[work.origin.replayed].any()


@needs_maker
def test_an_eager_trace_of_the_same_steps_tells_where_replayed_kernels_are_from(tmp_path: Path) -> None:
    from kernelwright.profiles.graphs import eager_donor
    from kernelwright.profiles.lines import name_lines
    from kernelwright.profiles.origin import trace_back

    (tmp_path / "eager").mkdir()
    eager, right = make(tmp_path / "eager", "--seed", "3")
    origin = trace_back(eager, np.flatnonzero(eager.is_kernel))
    donor = eager_donor(eager, origin, name_lines(eager, origin))
    assert donor is not None
    replayed, _ = make(tmp_path, "--seed", "3", "--graph-decode")
    work = attribute_work(replayed, [donor])
    assert work.graphs.joined == work.graphs.kernels > 0
    frames = {work.lines.texts[f] for f in work.lines.frame[work.origin.replayed]}
    assert frames <= set(right["per_frame"]) and {HOW[h] for h in work.lines.how[work.origin.replayed]} == {"eager"}


def numbers(text: str) -> np.ndarray:
    return np.array([-1 if letter == "?" else ord(letter) for letter in text], np.int64)


@pytest.mark.parametrize(
    ("tape", "wanted", "cursor", "found"),
    [
        ("abcabc", "abc", 0, [0, 1, 2]),
        ("abcabc", "abc", 3, [3, 4, 5]),  # the second of two equal pieces
        ("abcxyz", "xyz", 0, [3, 4, 5]),
        ("abcd", "acbd", 0, [0, 2, 1, 3]),  # two branches that ran at once
        ("aab", "aba", 0, [0, 2, 1]),
        ("abcd", "abxd", 0, [0, 1, -1, 3]),
        ("ab", "xy", 0, [-1, -1]),
        ("", "a", 0, [-1]),
        ("a?c", "abc", 0, [0, -1, 2]),  # a launch without a name is no evidence
    ],
)
def test_alignment(tape: str, wanted: str, cursor: int, found: list[int]) -> None:
    assert align(numbers(tape), numbers(wanted), cursor).tolist() == found


def test_launches_without_names_fit_only_a_sequence_of_the_same_length() -> None:
    assert align(numbers("???"), numbers("abc"), nameless_fits=True).tolist() == [0, 1, 2]
    assert align(numbers("???"), numbers("abc")).tolist() == [-1, -1, -1]
