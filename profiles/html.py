"""One HTML file of a trace: time by phase and family, roofline, flame graph, a step, gaps, ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

import numpy as np

from kernelwright.profiles.attribution import Work
from kernelwright.profiles.charts import (
    Bar,
    Box,
    Point,
    colour,
    draw_bars,
    draw_flame,
    draw_roofline,
    draw_timeline,
)
from kernelwright.profiles.devices import Device
from kernelwright.profiles.families import classify
from kernelwright.profiles.one_step import choose_step
from kernelwright.profiles.ranks import Ranks
from kernelwright.profiles.summary import TraceSummary
from kernelwright.profiles.table import Table

MOST_BOXES = 4000
_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;max-width:1160px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}svg text{font:11px system-ui,sans-serif;fill:currentColor}
svg text.on{fill:#222}table{border-collapse:collapse;font-size:12.5px;display:block;overflow-x:auto}
td,th{padding:2px 10px 2px 0;border-bottom:1px solid #8884;text-align:left;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.note{color:#777;font-size:12.5px}
.key span{display:inline-block;margin-right:1em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}}
"""


def render_html(
    title: str, summary: TraceSummary, work: Work, device: Device | None, tables: Sequence[Table], ranks: Ranks | None
) -> str:
    """Return the page as text. Every name in it is escaped; it holds no script and refers to nothing."""
    families = [f.operation for f in summary.families]
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>',
        f"<h1>{escape(title)}</h1>",
        _key(families),
        _section("Time by phase and family", _draw_phases(work)),
        _section("Roofline", _draw_roofline(summary, device)),
        _section("Time by module", _draw_flame(work)),
        _section("One step", _draw_step(work)),
        _section("Gaps between kernels", _draw_gaps(summary)),
        _section("Ranks", _draw_ranks(ranks)) if ranks else "",
        *map(_table, tables),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part) + "\n"


def _key(families: Sequence[str]) -> str:
    named = (f'<span><i style="background:{colour(name)}"></i>{escape(name)}</span>' for name in families)
    return f'<p class="key">{"".join(named)}</p>'


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}" if body else ""


def _table(table: Table) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{'' if i < table.num_text else ' class=n'}>{escape(cell)}</{tag}>" for i, cell in enumerate(row)
        )

    rows = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    return f"<h2>{escape(table.title)}</h2><table><tr>{cells(table.header, 'th')}</tr>{rows}</table>{notes}"


def _families(work: Work) -> list[str]:
    """Return the operation of each entry."""
    names, texts = work.events.pool.names, work.lines.texts
    return [
        classify(names[name], texts[op]).operation
        for name, op in zip(work.names.tolist(), work.lines.op.tolist(), strict=True)
    ]


def _draw_phases(work: Work) -> str:
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for phase, family, ns in zip(work.phase.tolist(), _families(work), work.ns.tolist(), strict=True):
        sums[work.phases[phase]][family] += ns / 1e6
    bars = [
        Bar(phase, tuple(sorted(parts.items(), key=lambda item: -item[1])))
        for phase, parts in sorted(sums.items(), key=lambda item: -sum(item[1].values()))
    ]
    return draw_bars(bars, "ms", "time by phase and family")


def _draw_roofline(summary: TraceSummary, device: Device | None) -> str:
    points = [
        Point(t.name, t.operation, t.flops / t.bytes, t.flops / t.modelled_ns * 1e9, t.share)
        for t in summary.targets
        if t.flops and t.bytes and t.modelled_ns
    ]
    if device is None or not points:
        why = "the device is not known: name it with --device" if device is None else "no shapes were recorded"
        return f'<p class="note">No roofline: {why}.</p>' if summary.cpu is None else ""
    share = sum(t.modelled_ns for t in summary.targets) / max(summary.work_ns, 1)
    roofs = f"the roofs of {device.name} ({device.source})"
    note = f"Kernels whose least work is known ({share:.0%} of the time) under {roofs}."
    return draw_roofline(points, device, "roofline") + f'<p class="note">{escape(note)}</p>'


def _draw_flame(work: Work) -> str:
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for path, ns in zip(work.lines.path.tolist(), work.ns.tolist(), strict=True):
        sums[tuple(work.lines.texts[path].split("\n")) if path else ("(no module)",)] += ns / 1e6
    return draw_flame(sums, "ms", "time by module") if any(work.lines.path.tolist()) else ""


def _draw_step(work: Work) -> str:
    events = work.events
    entries, name = choose_step(work)
    families, rows = _families(work), work.origin.work[entries]
    order = np.argsort(events.ts[rows], kind="stable")[:MOST_BOXES]
    boxes = [
        Box(
            _lane(work, row), events.pool.names[events.name[row]], families[entry], events.ts[row] / 1e3,
            events.dur[row] / 1e3,
        )
        for row, entry in zip(rows[order].tolist(), entries[order].tolist(), strict=True)
    ]  # fmt: skip
    note = f"{name}: {len(rows):,} pieces of work" + (
        f", the first {MOST_BOXES:,} of them" if len(rows) > MOST_BOXES else ""
    )
    return draw_timeline(boxes, "us", "one step") + f'<p class="note">{escape(note)}</p>' if boxes else ""


def _lane(work: Work, row: int) -> str:
    events = work.events
    stream = int(events.stream[row])
    pair = events.pool.streams[stream] if stream >= 0 else events.pool.lanes[events.lane[row]]
    return f"{pair[0]}/{pair[1]}"


def _draw_gaps(summary: TraceSummary) -> str:
    bars = [
        Bar(f"{b.count:,} below {b.below_us} us" if b.below_us else f"{b.count:,} longer", (("idle", b.ns / 1e6),))
        for b in summary.gaps.buckets
        if b.count
    ]
    return draw_bars(bars, "ms", "gaps by length") if bars else ""


def _draw_ranks(ranks: Ranks) -> str:
    bars = [
        Bar(
            f"rank {r.rank}",
            (
                ("other kernels", (r.kernel_ns - r.collective_ns) / 1e6), ("transfer", r.transfer_ns / 1e6),
                ("waiting", r.wait_ns / 1e6),
            ),
        )
        for r in ranks.ranks
    ]  # fmt: skip
    return draw_bars(bars, "ms", "time by rank")
