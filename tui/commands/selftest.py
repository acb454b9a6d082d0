"""`kernelwright selftest`: the judge against exploits and honest controls, on this machine."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.sandbox.selftest_report import Played, SelftestReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="everything, in up to 20 minutes (default: up to 90 s)")
    parser.add_argument("--cage", choices=("bubblewrap", "docker"), default="bubblewrap")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=(), help="play these alone; nothing is recorded")


def run(args: argparse.Namespace) -> int:
    """Return 0 when the judge can be trusted here, 1 otherwise."""
    from kernelwright.profiles.ceilings import measure_ceilings
    from kernelwright.sandbox.selftest import FAST, FULL, THREADS, run_selftest
    from kernelwright.sandbox.selftest_record import save_record
    from kernelwright.tui.bar import Bar

    with tempfile.TemporaryDirectory(prefix="kernelwright-selftest-") as folder, Bar() as bar:
        report = run_selftest(
            FULL if args.full else FAST, cage=args.cage, cache_dir=Path(folder), only=args.only,
            ceilings=measure_ceilings(THREADS, 64 << 20), on_progress=bar.show,
        )  # fmt: skip
    if not args.only:
        save_record(report)
    print_report(report)
    if args.json:
        print(json.dumps(report.counts()))
    return 0 if report.passed else 1


def print_report(report: SelftestReport) -> None:
    """Print the table of what was played, then what it comes to."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("", "family", "name", "outcome", "caught by", "s"):
        table.add_column(heading, justify="right" if heading == "s" else "left", no_wrap=heading != "caught by")
    for played in sorted(report.played, key=lambda p: (p.kind, p.family, p.name)):
        table.add_row(*_row(played))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    counts, aa = report.counts(), report.aa
    console.print(f"exploits {counts['exploits']}  honest {counts['honest']}", highlight=False)
    console.print(
        f"incumbent against itself: faster {aa.search_faster} of {aa.search_trials} in search, "
        f"{aa.confirm_faster} of {aa.confirm_trials} in confirm", highlight=False,
    )  # fmt: skip
    for planted in report.planted:
        console.print(
            f"planted {planted.percent:+g} %: faster {planted.faster}, slower {planted.slower} of {planted.trials}",
            highlight=False,
        )
    verdict = "the judge holds on this machine" if report.passed else "the judge does NOT hold on this machine"
    where = f"{report.isolation}, {report.seconds:.0f} s"
    if report.passed and not aa.search_trials:
        verdict, where = "the judge holds against these; nothing is recorded", f"{report.seconds:.0f} s"
    console.print(f"{verdict} ({where})", highlight=False)
    for failure in report.failures:
        console.print(f"  {failure}", highlight=False)


def _row(played: Played) -> tuple[str, ...]:
    said = played.outcome if played.ratio is None else f"{played.outcome} {played.ratio:.2f}x"
    bad = played.accepted if played.kind == "exploit" else played.outcome in ("incorrect", "suspect", "invalid")
    caught = played.caught_by if played.kind == "exploit" else played.text
    return "!" if bad else "", played.family or "honest", played.name, said, caught, f"{played.seconds:.1f}"
