"""`kernelwright report SESSION`: write report.html, report.md and report.json of a session again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kernelwright.agent.sessions import latest_session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", type=Path, help="session folder (default: the latest one)")


def run(args: argparse.Namespace) -> int:
    from kernelwright.agent.assemble import assemble_report
    from kernelwright.agent.ledger import Ledger
    from kernelwright.agent.report import write_reports
    from kernelwright.tui.commands.optimize import summary

    folder = args.session or latest_session()
    with Ledger.open(folder, readonly=True) as ledger:
        report = assemble_report(ledger)
    write_reports(report, folder)
    print(json.dumps(report) if args.json else summary(report))
    return 0
