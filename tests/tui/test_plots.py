"""Pictures made of characters keep their width and put their marks where the numbers are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tui.plots import bar, headroom_bar, interval_plot


def test_an_interval_above_one_lies_right_of_its_mark() -> None:
    axis, labels = interval_plot(2.0, 1.8, 2.2, 40, "green").plain.split("\n")
    assert axis.index("┼") < axis.index("━") < axis.index("●") < axis.rindex("━")
    assert labels.index("1.0") < labels.index("2.00")


def test_an_interval_that_holds_one_covers_its_mark() -> None:
    axis, labels = interval_plot(1.01, 0.9, 1.1, 40, "green").plain.split("\n")
    assert axis.index("━") < axis.index("┼") < axis.rindex("━")
    assert labels.split() == ["1.0"], "two labels in one place would be none"


@given(st.floats(0.01, 100), st.floats(1.0, 2.0), st.floats(1.0, 2.0), st.integers(12, 120))
def test_it_is_always_as_wide_as_asked(ratio: float, down: float, up: float, width: int) -> None:
    axis, labels = interval_plot(ratio, ratio / down, ratio * up, width, "green").plain.split("\n")
    assert len(axis) == len(labels) == width
    assert axis.count("●") == 1 and "1.0" in labels


@pytest.mark.parametrize(("ratio", "low", "high", "width"), [(1, 1.1, 1.2, 40), (1, 0, 1.2, 40), (1, 0.9, 1.1, 4)])
def test_what_cannot_be_drawn_is_refused(ratio: float, low: float, high: float, width: int) -> None:
    with pytest.raises(ValueError, match="cannot draw"):
        interval_plot(ratio, low, high, width, "green")


def test_bars_are_clipped_to_their_width() -> None:
    assert bar(0.25, 8, "red").plain == "━━──────"
    assert bar(7.0, 8, "red").plain == "━" * 8 and bar(-1, 8, "red").plain == "─" * 8
    assert headroom_bar(4.0, 8).plain == "━━──────"
    assert headroom_bar(0.5, 8).plain == "━" * 8 and headroom_bar(None, 8).plain == " " * 8
