"""`kernelwright doctor`: what this machine has and lacks, fast; the first thing a newcomer runs."""

from __future__ import annotations

import argparse
import json
import sys

from kernelwright.engine.doctor import Finding, examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 3 if something that the main job needs is missing, else 0."""
    findings = examine()
    for finding in findings:
        print(_line(finding))
    lacking = [f.name for f in findings if f.state == "missing" and f.needed]
    if args.json:
        print(json.dumps({"findings": [f.model_dump() for f in findings], "lacking": lacking}))
    else:
        print("lacking: " + ", ".join(lacking) if lacking else "everything the main job needs is here", file=sys.stderr)
    return 3 if lacking else 0


def _line(finding: Finding) -> str:
    mark = {"ok": "✓", "missing": "✗" if finding.needed else "–", "note": "·"}[finding.state]
    text = f"{mark} {finding.name:<18} {finding.detail}"
    return f"{text}\n  {'':<18} → {finding.remedy}" if finding.remedy and finding.state == "missing" else text
