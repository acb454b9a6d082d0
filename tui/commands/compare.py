"""`kernelwright compare A B`: what changed between two traces, per phase and kernel, with an exit code for CI.

Exit code 1 where B takes over --tolerance per cent longer than A, per step where both name their steps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.profiles.errors import NoDeviceWork, WrongUse

if TYPE_CHECKING:
    from kernelwright.profiles.comparison import Comparison, Row
    from kernelwright.profiles.summary import TraceSummary
    from kernelwright.profiles.table import Table

MOST_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, metavar="A", help="a trace, as `kernelwright profile` reads them")
    parser.add_argument("after", type=Path, metavar="B", help="the trace to compare with it")
    parser.add_argument(
        "--tolerance", type=float, default=5.0, metavar="PERCENT",
        help="how much longer B may take before the exit code is 1 (default: 5)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print what changed; return 1 when B is slower than allowed."""
    from kernelwright.profiles.comparison import compare_summaries
    from kernelwright.profiles.table import print_table

    if not 0 <= args.tolerance < 10_000:
        raise WrongUse("--tolerance is a percentage of at least 0", "Give it as --tolerance 5.")
    found = compare_summaries(_summarise(args.before), _summarise(args.after))
    slower = found.ratio is not None and found.ratio > 1 + args.tolerance / 100
    if args.json:
        print(json.dumps({**found.model_dump(mode="json"), "slower": slower, "tolerance_percent": args.tolerance}))
        return int(slower)
    for table in (
        _tabulate("Phases", found.phases, "step of its phase"),
        _tabulate("Kernels", found.kernels, found.per),
    ):
        print_table(table)
        print()
    print(_conclude(found, slower, args.tolerance))
    return int(slower)


def _summarise(path: Path) -> TraceSummary:
    from kernelwright.profiles.summary import summarise
    from kernelwright.profiles.trace import read_trace

    summary = summarise(read_trace(path))
    if not summary.work_ns:
        raise NoDeviceWork(f"{path} holds no work to compare", "name two traces taken while the engine served requests")
    return summary


def _tabulate(title: str, rows: tuple[Row, ...], per: str) -> Table:
    from kernelwright.profiles.table import Table

    shown = tuple(
        (
            row.name if len(row.name) <= 90 else row.name[:89] + "…", row.change, f"{row.before_count:,}",
            f"{row.after_count:,}", f"{row.before_ns / 1e6:,.3f}", f"{row.after_ns / 1e6:,.3f}",
            f"{row.delta_ns / 1e6:+,.3f}", f"{row.after_ns / row.before_ns:.3f}x" if row.before_ns else "",
        )
        for row in rows[:MOST_ROWS]
    )  # fmt: skip
    more = (f"{len(rows) - MOST_ROWS} more changed less",) if len(rows) > MOST_ROWS else ()
    header = ("name", "change", "count A", "count B", "ms A", "ms B", "ms more", "B / A")
    return Table(title, header, shown, 2, (f"times per {per}", *more))


def _conclude(found: Comparison, slower: bool, tolerance: float) -> str:
    said = [*found.notes]
    if found.ratio is None:
        return " ".join([*said, "There is no work in A."])
    times = f"{found.before_ns / 1e6:,.3f} to {found.after_ns / 1e6:,.3f} ms per {found.per}"
    verdict = f"over the {tolerance:g} % allowed" if slower else f"within the {tolerance:g} % allowed"
    return " ".join([*said, f"B takes {found.ratio:.3f} times as long as A ({times}), {verdict}."])
