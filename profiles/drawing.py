"""Pictures as inline SVG that takes its colours from the page, so that light and dark both read.

matplotlib draws with marker colours that no one else uses; `finish` turns them into CSS variables.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, LINE, PAPER = "#010101", "#020202", "#030303", "#040404"
BLUE, ORANGE, GREEN, RED, PURPLE = "#050505", "#060606", "#070707", "#080808", "#090909"
VARIABLES = {
    INK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper",
    BLUE: "blue", ORANGE: "orange", GREEN: "green", RED: "red", PURPLE: "purple",
}  # fmt: skip
WIDTH = 8.8
"""Inches; the page shows a picture a little larger than drawn, so that its text is as large as a caption's."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": LINE, "axes.labelcolor": MUTED, "axes.titlecolor": INK, "axes.titlesize": 10.5,
    "axes.titlelocation": "left", "axes.facecolor": "none", "figure.facecolor": "none", "text.color": INK,
    "xtick.color": LINE, "ytick.color": LINE, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED,
    "grid.color": LINE, "grid.linewidth": 0.6, "legend.frameon": False, "legend.labelcolor": MUTED,
    "legend.fontsize": 9.5, "axes.axisbelow": True,
}  # fmt: skip


@contextmanager
def figure_of(name: str, width: float, height: float) -> Iterator[tuple[Figure, Callable[[], str]]]:
    """Give a figure of `width` × `height` inches in our style, and the function that turns it into SVG text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # the salt keeps the ids of two pictures on one page apart, and equal between two runs
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure, lambda: _finish(figure)


def _finish(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>\s*", "", svg, flags=re.DOTALL)  # it would style the whole page
    svg = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names of groups, equal in every picture; no one refers to them
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg
