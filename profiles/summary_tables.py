"""The summary of a trace as tables: device time, kernels, phases, sources, and what was wrong with the file."""

from __future__ import annotations

from kernelwright.profiles.health import Health
from kernelwright.profiles.summary import TraceSummary
from kernelwright.profiles.table import Table, format_percent

MOST_ROWS = 20
NAME_WIDTH = 100


def tabulate_summary(summary: TraceSummary) -> list[Table]:
    """Return what there is to show of a trace."""
    if not summary.time.kernels:
        return [_device(summary)]
    return [_device(summary), _kernels(summary), _phases(summary), _sources(summary)]


def _device(summary: TraceSummary) -> Table:
    t = summary.time
    rows = (
        ("kernels", f"{t.kernels:,}", _ms(t.kernel_ns), f"{t.distinct_names} names on {t.streams} streams"),
        ("memory operations", f"{t.memops:,}", _ms(t.memop_ns), ""),
        ("busy with kernels", "", _ms(t.busy_kernel_ns), "union over all streams"),
        ("busy", "", _ms(t.busy_gpu_ns), f"kernels and memory operations; {_ms(t.overlap_ns)} ms ran at once"),
        ("idle", "", _ms(t.gpu_span_ns - t.busy_gpu_ns), f"of {_ms(t.gpu_span_ns)} ms from first start to last end"),
        (
            "launched unseen", f"{t.kernels_with_no_launch_event:,}", _ms(t.no_launch_ns),
            "before the window, or not recorded",
        ),
        ("replayed", "", _ms(summary.replayed_ns), "as parts of graphs"),
        ("without a line of Python", "", _ms(summary.unattributed_ns), "of the kernels"),
    )  # fmt: skip
    return Table(
        f"Device time ({summary.device})", ("what", "count", "ms", "note"), rows, 1, describe_health(summary.health)
    )


def _kernels(summary: TraceSummary) -> Table:
    t = summary.time
    rows = tuple(
        (_short(k.name), f"{k.count:,}", _ms(k.ns), format_percent(k.ns, t.kernel_ns), f"{k.ns / k.count / 1e3:.2f}")
        for k in t.top[:MOST_ROWS]
    )
    rest = sum(k.ns for k in t.top[MOST_ROWS:])
    if rest:
        count = sum(k.count for k in t.top[MOST_ROWS:])
        name = f"({len(t.top) - MOST_ROWS} more)"
        rows = (*rows, (name, f"{count:,}", _ms(rest), format_percent(rest, t.kernel_ns), ""))
    return Table("Kernels", ("kernel", "count", "ms", "of kernels", "us each"), rows, 1)


def _phases(summary: TraceSummary) -> Table:
    total = summary.time.kernel_ns
    rows = tuple(
        (
            name,
            f"{p.steps:,}" if p.steps else "",
            f"{p.kernels:,}",
            _ms(p.kernel_ns),
            format_percent(p.kernel_ns, total),
        )
        for name, p in summary.phases.items()
    )
    return Table("Phases", ("phase", "steps", "kernels", "ms", "of kernels"), rows, 1)


def _sources(summary: TraceSummary) -> Table:
    total = summary.time.kernel_ns
    rows = tuple(
        (
            _short(s.source or "(unknown)"),
            s.module,
            f"{s.kernels:,}",
            _ms(s.kernel_ns),
            format_percent(s.kernel_ns, total),
        )
        for s in summary.sources[:MOST_ROWS]
    )
    return Table("Lines of Python", ("line", "module", "kernels", "ms", "of kernels"), rows, 2)


def describe_health(health: Health) -> tuple[str, ...]:
    """Return what a reader of the numbers must know of the file, in sentences."""
    said = ["The file is cut: what was written later is missing, and kernels are written last."] if health.cut else []
    said += [f"Repaired: {count} times {fault}." for fault, count in health.repaired.items()]
    said += [f"Left out: {count} events, {fault}." for fault, count in health.dropped.items()]
    if health.unknown_categories:
        said.append(f"Unknown categories, not counted as work: {', '.join(health.unknown_categories)}.")
    if health.kernels_with_zero_ts:
        said.append(f"{health.kernels_with_zero_ts} kernels have no time; they are in no sum.")
    if health.kernels_with_negative_dur:
        said.append(f"{health.kernels_with_negative_dur} kernels end before they start; they are in no sum.")
    if health.kernel_ns_raw is not None and health.kernel_ns_clipped is not None:
        said.append(
            f"Kernels sum to {_ms(health.kernel_ns_raw)} ms as written, {_ms(health.kernel_ns_clipped)} ms clipped."
        )
    return (*said, *health.notes)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
