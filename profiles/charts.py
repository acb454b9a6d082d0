"""Pictures of a profile as SVG text: bars, roofline, flame graph, timeline. No scripts, nothing from outside."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from kernelwright.profiles.devices import Device
from kernelwright.profiles.families import OPERATIONS

WIDTH = 1100
_HUES = {name: i * 7 % len(OPERATIONS) / len(OPERATIONS) for i, name in enumerate(OPERATIONS)}


class Bar(NamedTuple):
    label: str
    parts: tuple[tuple[str, float], ...]
    """(kind, value); the kind gives the colour."""


class Point(NamedTuple):
    label: str
    kind: str
    intensity: float
    """FLOPs per byte."""
    rate: float
    """FLOP/s reached."""
    share: float


class Box(NamedTuple):
    lane: str
    label: str
    kind: str
    start: float
    length: float


def colour(kind: str) -> str:
    """Return the colour of an operation family, the same in every picture."""
    if kind not in _HUES:
        return _hex(sum(kind.encode()) * 37 % 360 / 360, 0.6, 0.45)
    return "#a6a6a6" if kind == "other" else _hex(_HUES[kind], 0.55, 0.55)


def _hex(hue: float, lightness: float, saturation: float) -> str:
    """Return the colour in the form that every viewer of SVG knows."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, saturation))


def _svg(height: float, body: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="100%" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def _box(x: float, y: float, w: float, h: float, fill: str, tip: str) -> str:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{max(w, 0.3):.2f}" height="{h:.1f}"'
    return f'<rect {place} fill="{fill}"><title>{escape(tip)}</title></rect>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def draw_bars(bars: Sequence[Bar], unit: str, title: str) -> str:
    """Return stacked horizontal bars with their sums."""
    longest = max((sum(v for _, v in bar.parts) for bar in bars), default=0.0) or 1.0
    body, left, room = [], 220, WIDTH - 340
    for i, bar in enumerate(bars):
        y, x = 6 + i * 24, float(left)
        body.append(_text(left - 8, y + 13, bar.label[:34], 'text-anchor="end"'))
        for kind, value in bar.parts:
            w = value / longest * room
            body.append(_box(x, y, w, 18, colour(kind), f"{bar.label}: {kind} {value:,.3f} {unit}"))
            x += w
        body.append(_text(x + 6, y + 13, f"{sum(v for _, v in bar.parts):,.3f} {unit}"))
    return _svg(12 + 24 * len(bars), body, title)


def draw_roofline(points: Sequence[Point], device: Device, title: str) -> str:
    """Return FLOP/s over FLOPs per byte, both logarithmic, under the roofs of `device`; area is share of time."""
    peaks: dict[float, list[str]] = {}
    for name, rate in sorted(device.flops_per_s.items(), key=lambda item: item[1]):
        peaks.setdefault(rate, []).append(name)
    top = max(peaks) * 2
    low = min([p.rate for p in points] + [top / 1e5]) / 2
    left_i, right_i = min([p.intensity for p in points] + [0.1]) / 2, max([p.intensity for p in points] + [5e3]) * 2
    height, left = 420, 70

    def x(intensity: float) -> float:
        return left + (WIDTH - left - 170) * math.log(intensity / left_i) / math.log(right_i / left_i)

    def y(rate: float) -> float:
        return 10 + (height - 50) * math.log(top / rate) / math.log(top / low)

    body = []
    for peak, names in peaks.items():
        corner = min(max(peak / device.memory_bytes_per_s, left_i), right_i)
        slope = max(low / device.memory_bytes_per_s, left_i)
        foot = f"M{x(slope):.1f},{y(slope * device.memory_bytes_per_s):.1f}"
        path = f"{foot} L{x(corner):.1f},{y(peak):.1f} L{x(right_i):.1f},{y(peak):.1f}"
        body.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>')
        body.append(_text(x(right_i) + 4, y(peak) + 4, f"{', '.join(names)} {peak / 1e12:,.0f} TFLOP/s"))
    for p in points:
        r = 3 + 22 * math.sqrt(p.share)
        tip = f"{p.label}: {p.rate / 1e12:,.3f} TFLOP/s at {p.intensity:,.1f} FLOP/B, {p.share:.1%} of the time"
        body.append(
            f'<circle cx="{x(p.intensity):.1f}" cy="{y(p.rate):.1f}" r="{r:.1f}" fill="{colour(p.kind)}" '
            f'fill-opacity="0.7"><title>{escape(tip)}</title></circle>'
        )
    for power in range(math.ceil(math.log10(left_i)), math.floor(math.log10(right_i)) + 1):
        body.append(_text(x(10.0**power), height - 22, f"{10.0**power:g}", 'text-anchor="middle"'))
    body.append(_text(WIDTH / 2, height - 6, "FLOPs per byte", 'text-anchor="middle"'))
    return _svg(height, body, title)


def draw_flame(paths: Mapping[tuple[str, ...], float], unit: str, title: str) -> str:
    """Return a flame graph: each module as wide as the time under it, its callers below it."""
    tree: dict[tuple[str, ...], float] = {}
    for path, value in paths.items():
        for depth in range(len(path) + 1):
            tree[path[:depth]] = tree.get(path[:depth], 0.0) + value
    total = tree.get((), 0.0) or 1.0
    deepest = max(map(len, tree), default=0)
    starts: dict[tuple[str, ...], float] = {(): 0.0}
    body = []
    for path in sorted(tree, key=lambda p: (len(p), -tree[p])):
        if path:
            parent = path[:-1]
            at = starts[parent]
            starts[parent] = at + tree[path]
        else:
            at = 0.0
        starts[path] = at
        w = tree[path] / total * WIDTH
        if w < 0.5:
            continue
        x, y = at / total * WIDTH, (deepest - len(path)) * 20
        name = path[-1] if path else "all"
        fill = _hex((20 + sum(name.encode()) % 40) / 360, 0.62, 0.8)
        body.append(
            _box(
                x,
                y,
                w - 0.5,
                19,
                fill,
                f"{' > '.join(path) or 'all'}: {tree[path]:,.3f} {unit} ({tree[path] / total:.1%})",
            )
        )
        if w > 40:
            body.append(_text(x + 3, y + 14, name[: int(w / 7)], 'class="on"'))
    return _svg(20 * (deepest + 1), body, title)


def draw_timeline(boxes: Sequence[Box], unit: str, title: str) -> str:
    """Return one row per stream, each piece of work where it ran."""
    lanes = list(dict.fromkeys(box.lane for box in boxes))
    begin = min((box.start for box in boxes), default=0.0)
    length = max((box.start + box.length for box in boxes), default=1.0) - begin or 1.0
    left, room = 110, WIDTH - 120
    body = [_text(left - 6, 20 + i * 30, lane[:16], 'text-anchor="end"') for i, lane in enumerate(lanes)]
    for box in boxes:
        x = left + (box.start - begin) / length * room
        tip = f"{box.label}: {box.length:,.3f} {unit} at {box.start - begin:,.3f}"
        body.append(_box(x, 6 + lanes.index(box.lane) * 30, box.length / length * room, 22, colour(box.kind), tip))
    bottom = 18 + 30 * len(lanes)
    for part in range(5):
        anchor = f'text-anchor="{"end" if part == 4 else "middle"}"'
        body.append(_text(left + room * part / 4, bottom, f"{length * part / 4:,.2f} {unit}", anchor))
    return _svg(bottom + 8, body, title)
