"""Pictures made of characters: an interval over 1.0, a bar, a share of a whole."""

from __future__ import annotations

import math

from rich.text import Text

from kernelwright.tui.palette import DIM, FAINT, TEXT


def interval_plot(ratio: float, low: float, high: float, width: int, colour: str) -> Text:
    """Return two lines: the interval and its middle on a log axis with a mark at 1.0, and the axis' labels.

    Raises ValueError unless 0 < low <= ratio <= high and width >= 12.
    """
    if not 0 < low <= ratio <= high or width < 12:
        raise ValueError(f"cannot draw {low} <= {ratio} <= {high} in {width} cells")
    left, right = math.log(min(low, 1.0)) - 0.03, math.log(max(high, 1.0)) + 0.03

    def cell(value: float) -> int:
        return round((math.log(value) - left) / (right - left) * (width - 1))

    one, first, last, middle = cell(1.0), cell(low), cell(high), cell(ratio)
    line = Text()
    for at in range(width):
        if at == middle:
            line.append("●", colour)
        elif at == one:
            line.append("┼", DIM)
        elif first <= at <= last:
            line.append("━", colour)
        else:
            line.append("─", FAINT)
    return Text("\n").join([line, _labels(one, middle, f"{ratio:.2f}", width)])


def _labels(one: int, middle: int, middle_label: str, width: int) -> Text:
    """Return the line below the axis; the label at 1.0 wins where the two would touch."""
    cells = [" "] * width
    for at, label in ((middle, middle_label), (one, "1.0")):
        start = max(0, min(width - len(label), at - len(label) // 2))
        if label == "1.0" and abs(middle - one) < len(label) + len(middle_label) // 2 + 1:
            cells = [" "] * width
        cells[start : start + len(label)] = label
    return Text("".join(cells), DIM)


def bar(fraction: float, width: int, colour: str, ground: str = FAINT) -> Text:
    """Return a thin line of `width` cells filled up to `fraction` (clipped to 0…1)."""
    full = round(max(0.0, min(1.0, fraction)) * width)
    return Text.assemble(("━" * full, colour), ("─" * (width - full), ground))


def headroom_bar(headroom: float | None, width: int) -> Text:
    """Return a slot's time as a line: the thick part it would still take at its roofline, the thin part is headroom."""
    if headroom is None:
        return Text(" " * width)
    needed = max(1, round(width / max(1.0, headroom)))
    return Text.assemble(("━" * needed, TEXT), ("─" * (width - needed), DIM))
