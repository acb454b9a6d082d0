"""Rows grouped by several columns: the same groups as sorting whole rows finds, however wide the numbers are."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from kernelwright.profiles.grouping import group_rows

numbers = st.one_of(st.integers(-3, 3), st.integers(-(1 << 62), 1 << 62))


@example([(-(1 << 62), 0, 0), (1 << 62, 0, 0), (0, 0, 0)])
@given(st.lists(st.tuples(numbers, numbers, st.integers(-1, 1)), max_size=30))
def test_groups_are_those_of_whole_rows(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    kinds, member = group_rows(*columns)
    expected = sorted(set(rows))
    assert [tuple(row) for row in kinds.tolist()] == expected
    assert [expected[i] for i in member.tolist()] == rows


def test_columns_of_other_types_are_read_as_they_are() -> None:
    kinds, member = group_rows(np.array([1, 0, 1], np.int32), np.array([7, 7, 7], np.int64))
    assert kinds.tolist() == [[0, 7], [1, 7]]
    assert member.tolist() == [1, 0, 1]
