"""Steps found by kernels that repeat, and self times of ops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.profiles.self_time import find_ops, self_times
from kernelwright.profiles.sequences import find_sequences
from kernelwright.profiles.trace import read_trace


def numbers(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], np.int64)


def test_repeated_steps_are_told_from_what_surrounds_them() -> None:
    labels, rounds = find_sequences(numbers("wx" + "sabab" * 4 + "tcc" * 3))
    assert labels[:2] == ["outside"] * 2
    assert set(labels[2:17]) == {"sequence 1 of 5 kernels"}
    assert rounds[:17].tolist() == [-1] * 2 + [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.parametrize("text", ["", "a", "abcdef", "aaaa"[:2]])
def test_what_does_not_repeat_is_no_step(text: str) -> None:
    assert set(find_sequences(numbers(text))[0]) <= {"outside"}


Span = st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(1, 2))


@given(st.lists(Span, min_size=1, max_size=30))
def test_self_times_of_a_thread_sum_to_the_union_of_its_ops(spans: list[tuple[int, int, int]]) -> None:
    import json
    import tempfile

    rows = [
        {"ph": "X", "cat": "cpu_op", "name": f"o{i}", "pid": 1, "tid": t, "ts": ts, "dur": d}
        for i, (ts, d, t) in enumerate(spans)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps({"traceEvents": rows}))
        file.flush()
        trace = read_trace(Path(file.name))
    own = self_times(trace, find_ops(trace))
    covered = {(t, x) for ts, d, t in spans for x in range(ts, ts + d)}
    assert own.sum() == 1000 * len(covered)


def test_an_op_is_charged_without_those_in_it(write_trace: Any) -> None:
    trace = read_trace(
        write_trace(("outer", 0, 100), ("inner", 10, 30), ("deep", 20, 5), ("inner", 60, 20), category="cpu_op")
    )
    own = self_times(trace, find_ops(trace))
    assert dict(zip(trace.name.tolist(), own.tolist(), strict=True)).keys() == {0, 1, 2}
    assert own.tolist() == [50, 25, 5, 20]
