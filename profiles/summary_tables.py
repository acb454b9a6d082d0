"""The summary of a trace as tables: device time, kernels, phases, sources, and what was wrong with the file."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.profiles.families import classify
from kernelwright.profiles.health import Health
from kernelwright.profiles.ncu import KernelCounters
from kernelwright.profiles.nsys_csv import KernelSums
from kernelwright.profiles.ranks import Ranks
from kernelwright.profiles.summary import TraceSummary
from kernelwright.profiles.table import Table, format_percent

MOST_ROWS = 20
NAME_WIDTH = 100
LEAST_SHARE = 0.01


def tabulate_summary(summary: TraceSummary) -> list[Table]:
    """Return what there is to show of a trace."""
    if summary.cpu is not None:
        return [
            _cpu(summary),
            _phases(summary),
            _families(summary),
            _sources(summary),
            tabulate_kernel_targets(summary),
        ]
    if not summary.time.kernels:
        return [_device(summary)]
    return [
        _device(summary), _kernels(summary), _phases(summary), _families(summary), _sources(summary), _gaps(summary),
        tabulate_kernel_targets(summary),
    ]  # fmt: skip


def _window(summary: TraceSummary) -> str:
    if summary.window_ns is None:
        return "from first start to last end"
    start, end = summary.window_ns
    return f"from {_ms(start)} to {_ms(end)} ms of the trace"


def _device(summary: TraceSummary) -> Table:
    t, graphs = summary.time, summary.graphs
    followed = f"{graphs.joined:,} of {graphs.kernels:,} followed to where they were captured" if graphs.kernels else ""
    rows: tuple[tuple[str, ...], ...] = (
        ("kernels", f"{t.kernels:,}", _ms(t.kernel_ns), f"{t.distinct_names} names on {t.streams} streams"),
        ("memory operations", f"{t.memops:,}", _ms(t.memop_ns), ""),
        ("busy with kernels", "", _ms(t.busy_kernel_ns), "union over all streams"),
        ("busy", "", _ms(t.busy_gpu_ns), f"kernels and memory operations; {_ms(t.overlap_ns)} ms ran at once"),
        ("idle", "", _ms(t.gpu_span_ns - t.busy_gpu_ns), f"of {_ms(t.gpu_span_ns)} ms {_window(summary)}"),
        (
            "launched unseen", f"{t.kernels_with_no_launch_event:,}", _ms(t.no_launch_ns),
            "before the window, or not recorded",
        ),
        ("replayed", f"{graphs.kernels:,}", _ms(summary.replayed_ns), followed or "as parts of graphs"),
        ("without a line of Python", "", _ms(summary.unattributed_ns), "of the kernels"),
    )  # fmt: skip
    for name, one in t.per_device.items():
        idle = one.gpu_span_ns - one.busy_gpu_ns
        rows = (
            *rows,
            (
                f"device {name}",
                f"{one.kernels:,}",
                _ms(one.kernel_ns),
                f"busy {_ms(one.busy_gpu_ns)} ms, idle {_ms(idle)} ms",
            ),
        )
    device = f"{summary.device}, {summary.gpu}" if summary.gpu else summary.device
    return Table(f"Device time ({device})", ("what", "count", "ms", "note"), rows, 1, describe_health(summary.health))


def _cpu(summary: TraceSummary) -> Table:
    cpu = summary.cpu
    assert cpu is not None
    rows = [
        (
            _short(op.name),
            f"{op.count:,}",
            _ms(op.ns),
            format_percent(op.ns, cpu.busy_ns),
            f"{op.ns / op.count / 1e3:.2f}",
        )
        for op in cpu.top[:MOST_ROWS]
    ]
    rest = cpu.top[MOST_ROWS:]
    if rest:
        count, ns = sum(op.count for op in rest), sum(op.ns for op in rest)
        rows.append((f"({len(rest)} more)", f"{count:,}", _ms(ns), format_percent(ns, cpu.busy_ns), ""))
    busy = f"busy {_ms(cpu.busy_ns)} of {_ms(cpu.span_ns)} ms"
    note = f"{cpu.ops:,} ops on {cpu.threads} threads, {busy}; times are self times"
    header = ("op", "count", "self ms", "of busy", "us each")
    return Table("Operations (cpu)", header, tuple(rows), 1, (note, *describe_health(summary.health)))


def _kernels(summary: TraceSummary) -> Table:
    t = summary.time
    rows = tuple(
        (_short(k.name), f"{k.count:,}", _ms(k.ns), format_percent(k.ns, t.kernel_ns), f"{k.ns / k.count / 1e3:.2f}")
        for k in t.top[:MOST_ROWS]
    )
    rest = t.top[MOST_ROWS:]
    if rest:
        count, ns = sum(k.count for k in rest), sum(k.ns for k in rest)
        rows = (*rows, (f"({len(rest)} more)", f"{count:,}", _ms(ns), format_percent(ns, t.kernel_ns), ""))
    return Table("Kernels", ("kernel", "count", "ms", "of kernels", "us each"), rows, 1)


def _phases(summary: TraceSummary) -> Table:
    rows = tuple(
        (
            name, f"{p.steps:,}" if p.steps else "", f"{p.kernels:,}", _ms(p.kernel_ns),
            format_percent(p.kernel_ns, summary.work_ns),
        )
        for name, p in summary.phases.items()
    )  # fmt: skip
    return Table("Phases", ("phase", "steps", _work(summary), "ms", "share"), rows, 1)


def _families(summary: TraceSummary) -> Table:
    rows = tuple(
        (
            f.operation, ", ".join(f.libraries[:3]), f"{f.kernels:,}", _ms(f.ns), format_percent(f.ns, summary.work_ns),
            "no model" if f.least_ns is None else _ms(round(f.least_ns)),
            "" if not f.least_ns else f"{f.modelled_ns / f.least_ns:.1f}x",
        )
        for f in summary.families
    )  # fmt: skip
    header = ("family", "libraries", _work(summary), "ms", "share", "roofline ms", "headroom")
    return Table("Families", header, rows, 2)


def _sources(summary: TraceSummary) -> Table:
    rows = tuple(
        (
            _short(s.source or "(unknown)"), s.module, f"{s.kernels:,}", _ms(s.kernel_ns),
            format_percent(s.kernel_ns, summary.work_ns),
        )
        for s in summary.sources[:MOST_ROWS]
    )  # fmt: skip
    return Table("Lines of Python", ("line", "module", _work(summary), "ms", "share"), rows, 2)


def _gaps(summary: TraceSummary) -> Table:
    gaps = summary.gaps
    rows = tuple(
        (
            _ms(g.ns), f"{g.at_ns / 1e6:,.3f}",
            {True: "host was late", False: "launched before", None: "unknown"}[g.waited_for_launch],
            _short(g.before, 50), _short(g.after, 50),
        )
        for g in gaps.longest[:5]
    )  # fmt: skip
    note = (
        f"{gaps.count:,} gaps, {_ms(gaps.ns)} ms; in {_ms(gaps.late_ns)} ms of them the next work had not been launched"
    )
    return Table("Longest gaps", ("ms", "at ms", "launch", "behind", "before"), rows, 0, (note,))


def tabulate_kernel_targets(summary: TraceSummary) -> Table:
    """Return the best targets, and those excluded that take over one per cent, with their reasons."""
    chosen = [t for t in summary.targets if t.excluded is None][:MOST_ROWS]
    left = [t for t in summary.targets if t.excluded is not None and t.share >= LEAST_SHARE]
    rows = tuple(
        (
            _short(t.name, 70), t.operation, _short(t.excluded or t.reach, 60), f"{t.share:.1%}",
            "no model" if t.headroom is None else f"{t.headroom:.1f}x", t.bound, f"{t.ceiling:.2f}x",
            _short(t.source or t.op, 60),
        )
        for t in [*chosen, *left]
    )  # fmt: skip
    notes = (
        "headroom = time now / time at the roofline; ceiling = speed-up of all work if this ran at its roofline "
        "(took no time, without a model)",
    )
    header = ("kernel", "family", "reach", "share", "headroom", "bound", "ceiling", "where")
    return Table("Targets", header, rows, 3, notes)


def tabulate_ranks(ranks: Ranks) -> Table:
    """Return one row per rank: waiting told from transfer."""
    rows = tuple(
        (
            str(r.rank), r.file, f"{r.kernels:,}", _ms(r.kernel_ns), _ms(r.busy_ns), f"{r.collectives:,}",
            _ms(r.wait_ns), _ms(r.transfer_ns), f"{r.offset_ns / 1e3:,.1f}",
        )
        for r in ranks.ranks
    )  # fmt: skip
    notes = (
        f"{ranks.matched:,} collectives are in every rank, {ranks.unmatched:,} are not; the others wait most for rank "
        f"{ranks.slowest}",
        f"clocks are aligned on the ends of collectives, which then lie {ranks.spread_ns / 1e3:,.1f} us apart (median)",
    )
    header = ("rank", "file", "kernels", "ms", "busy ms", "collectives", "waiting ms", "transfer ms", "clock us")
    return Table("Ranks", header, rows, 2, notes)


def tabulate_counters(counters: Sequence[KernelCounters]) -> Table:
    """Return one row per launch under Nsight Compute."""
    rows = tuple(
        (
            _short(c.name, 70), c.bound, _number(c.seconds, 1e6), _number(c.dram_share, 100),
            _number(c.compute_share, 100), _number(c.dram_bytes_per_s, 1e-9), _number(c.peak_dram_bytes_per_s, 1e-9),
            "no model" if c.headroom is None else f"{c.headroom:.1f}x",
        )
        for c in counters
    )  # fmt: skip
    header = ("kernel", "bound", "us", "DRAM %", "compute %", "GB/s", "of GB/s", "headroom")
    return Table(
        "Counters (Nsight Compute)", header, rows, 2, tuple(dict.fromkeys(a for c in counters for a in c.advice))
    )


def tabulate_sums(sums: KernelSums) -> Table:
    """Return kernels as another tool has summed them."""
    total = sum(k.ns for k in sums.kernels)
    rows = tuple(
        (
            _short(k.name), classify(k.name).operation, f"{k.count:,}", _ms(k.ns), format_percent(k.ns, total),
            f"{k.ns / max(k.count, 1) / 1e3:.2f}",
        )
        for k in sums.kernels[:MOST_ROWS]
    )  # fmt: skip
    notes = ("sums of another tool: when kernels ran, and where they come from, is not in the file",)
    return Table(
        "Kernels",
        ("kernel", "family", "count", "ms", "share", "us each"),
        rows,
        2,
        (*notes, *describe_health(sums.health)),
    )


def _work(summary: TraceSummary) -> str:
    return "ops" if summary.cpu else "kernels"


def _number(value: float | None, scale: float) -> str:
    return "unknown" if value is None else f"{value * scale:,.2f}"


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


def _short(name: str, width: int = NAME_WIDTH) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"
