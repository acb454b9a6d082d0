"""Sums over intervals of time: union, overlap, and which interval is the innermost around a point."""

from __future__ import annotations

import itertools

import numpy as np

from kernelwright.profiles.events import Flags, Indices, Integers

MOST_ROUNDS = 64


def union_ns(start: Integers, end: Integers) -> int:
    """Return the length of the union of the intervals [start, end), ns; those without a length do not count."""
    merged = merge(start, end)
    return int((merged[1] - merged[0]).sum())


def merge(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Return the union of the intervals as (starts, ends) of disjoint ones, ascending; touching ones are joined."""
    real = end > start
    order = np.argsort(start[real], kind="stable")
    start, end = start[real][order], end[real][order]
    if not len(start):
        return start, end
    reached = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reached[last]


def starts_early(lane: Indices, start: Integers, end: Integers) -> Flags:
    """Return which intervals start before an earlier one of their lane has ended; shape [n].

    Earlier: the smaller start, of equal ones the smaller end.
    """
    order = np.lexsort((end, start, lane))
    early = np.zeros(len(start), np.bool_)
    for first, stop in groups(lane[order]):
        rows = order[first:stop]
        reached = np.maximum.accumulate(end[rows])
        early[rows[1:]] = start[rows[1:]] < reached[:-1]
    return early


def groups(sorted_keys: Indices | Integers) -> list[tuple[int, int]]:
    """Return (first, stop) of each run of equal keys."""
    if not len(sorted_keys):
        return []
    edges = np.flatnonzero(np.diff(sorted_keys)) + 1
    bounds = [0, *edges.tolist(), len(sorted_keys)]
    return list(itertools.pairwise(bounds))


def innermost(
    span_lane: Indices, span_start: Integers, span_end: Integers, point_lane: Indices, point: Integers
) -> Integers:
    """Return for each point the row of the innermost span [start, end) of its lane around it, -1 for none; shape [n].

    The innermost is the one that starts last; of those that start at once, the shortest. Spans may cross, as host
    ranges do. One pass per lane over the spans that hold a point.
    """
    found = np.full(len(point), -1, np.int64)
    span_order = np.lexsort((-span_end, span_start, span_lane))
    point_order = np.lexsort((point, point_lane))
    spans_of = {int(span_lane[span_order[a]]): (a, b) for a, b in groups(span_lane[span_order])}
    for a, b in groups(point_lane[point_order]):
        points = point_order[a:b]
        bounds = spans_of.get(int(point_lane[points[0]]))
        if bounds is not None:
            found[points] = _sweep(span_order[bounds[0] : bounds[1]], span_start, span_end, point[points])
    return found


def _sweep(rows: Integers, start: Integers, end: Integers, points: Integers) -> Integers:
    """`rows` of one lane in order of their starts, `points` ascending."""
    starts, ends = start[rows], end[rows]
    first = np.searchsorted(points, starts, "left")
    holds = first < np.searchsorted(points, ends, "left")
    rows, ends, first = rows[holds], ends[holds], first[holds]
    if not len(rows):
        return np.full(len(points), -1, np.int64)
    at = _nearest(first, ends, points)
    return np.where(at >= 0, rows[at], -1)


def _nearest(first: Integers, ends: Integers, points: Integers) -> Integers:
    """Return for each point the last span that starts at or before it and ends behind it, -1 for none.

    `first` is the first point that each span could hold. By whole arrays: from the last span that starts before a point
    on to the nearest before that which ends later, until one holds the point. Few rounds do for all but deep nests that
    end together; those are swept point by point.
    """
    at = np.searchsorted(first, np.arange(len(points)), "right") - 1
    left = _past_end(np.flatnonzero(at >= 0), at, ends, points)
    outer = _find_outer(ends) if len(left) else at
    for _ in range(MOST_ROUNDS):
        if outer is None or not len(left):
            break
        at[left] = outer[at[left]]
        left = _past_end(left[at[left] >= 0], at, ends, points)
    return _sweep_points(first, ends, points) if len(left) else at


def _sweep_points(first: Integers, ends: Integers, points: Integers) -> Integers:
    """Do the same with a stack of the spans that are open, in linear time."""
    pushes, until = first.tolist(), ends.tolist()
    stack: list[int] = []
    result = [-1] * len(points)
    at = 0
    for i, time in enumerate(points.tolist()):
        while at < len(pushes) and pushes[at] <= i:
            while stack and until[stack[-1]] <= until[at]:
                stack.pop()  # it started before and ends before: it is never the innermost again
            stack.append(at)
            at += 1
        while stack and until[stack[-1]] <= time:
            stack.pop()
        result[i] = stack[-1] if stack else -1
    return np.array(result, np.int64)


def _past_end(of: Integers, at: Integers, ends: Integers, points: Integers) -> Integers:
    """Return those of the points `of` at which their span `at` has ended."""
    return of[ends[at[of]] <= points[of]]


def _find_outer(ends: Integers) -> Integers | None:
    """Return for each span the nearest before it that ends later, -1 for none; None where that takes many rounds."""
    outer = np.arange(-1, len(ends) - 1)
    left = np.arange(1, len(ends))
    for _ in range(MOST_ROUNDS):
        left = left[ends[outer[left]] <= ends[left]]
        if not len(left):
            return outer
        outer[left] = outer[outer[left]]
        left = left[outer[left] >= 0]
    return None
