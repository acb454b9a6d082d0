"""Sums over intervals against the plain way to do them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.profiles import spans as module
from kernelwright.profiles.spans import innermost, merge, starts_early, union_ns

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20)), max_size=40)
POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 65)), max_size=40)
quick = settings(max_examples=150, deadline=None)


def columns(spans: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(spans, np.int64).reshape(-1, 3)
    return table[:, 0].astype(np.int32), table[:, 1], table[:, 1] + table[:, 2]


@given(SPANS)
@quick
def test_the_union_counts_every_instant_once(spans: list[tuple[int, int, int]]) -> None:
    _, start, end = columns(spans)
    assert union_ns(start, end) == len({t for s, e in zip(start, end, strict=True) for t in range(s, e)})
    first, last = merge(start, end)
    assert np.all(first < last) and np.all(first[1:] > last[:-1])


@given(SPANS)
@quick
def test_an_early_start_is_one_before_an_earlier_end(spans: list[tuple[int, int, int]]) -> None:
    lane, start, end = columns(spans)
    right = 0
    for number in set(lane.tolist()):
        reached = None
        for s, e in sorted((int(a), int(b)) for n, a, b in zip(lane, start, end, strict=True) if n == number):
            right += reached is not None and s < reached
            reached = e if reached is None else max(reached, e)
    assert int(starts_early(lane, start, end).sum()) == right


@given(SPANS, POINTS)
@quick
def test_the_innermost_span_is_the_last_to_start_of_those_around(
    spans: list[tuple[int, int, int]], points: list[tuple[int, int]]
) -> None:
    lane, start, end = columns(spans)
    asked = np.array(points, np.int64).reshape(-1, 2)
    found = innermost(lane, start, end, asked[:, 0].astype(np.int32), asked[:, 1])
    for (number, t), row in zip(points, found.tolist(), strict=True):
        around = [i for i in range(len(spans)) if lane[i] == number and start[i] <= t < end[i]]
        if not around:
            assert row == -1
            continue
        best = max(around, key=lambda i: (start[i], -end[i]))
        assert (start[row], end[row]) == (start[best], end[best]) and row in around


@quick
@given(SPANS, POINTS, st.integers(0, 2))
def test_the_sweep_by_points_finds_the_same(
    spans: list[tuple[int, int, int]], points: list[tuple[int, int]], rounds: int
) -> None:
    lane, start, end = columns(spans)
    asked = np.array(points, np.int64).reshape(-1, 2)
    point_lane, point = asked[:, 0].astype(np.int32), asked[:, 1]
    expected = innermost(lane, start, end, point_lane, point).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_ROUNDS", rounds)
        assert innermost(lane, start, end, point_lane, point).tolist() == expected


def test_deep_nests_are_swept_point_by_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of spans that end together whole arrays leave one a round: that would take the square of their number."""
    swept = []
    sweep = module._sweep_points
    monkeypatch.setattr(module, "_sweep_points", lambda *columns: swept.append(1) or sweep(*columns))
    n = 2 * module.MOST_ROUNDS
    start = np.arange(n)
    end = np.where(start == 0, 10 * n, 2 * n - start)
    points = np.concatenate((start, np.arange(3 * n, 4 * n)))
    found = innermost(np.zeros(n, np.int32), start, end, np.zeros(len(points), np.int32), points)
    assert found[:n].tolist() == start.tolist() and not found[n:].any() and swept
