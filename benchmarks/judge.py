"""How fast the judge is, and how much of its time the candidate works: `python benchmarks/judge.py`.

Takes search and confirm verdicts of honest controls of the selftest, each built beforehand, in fresh cages. Prints one
line per candidate and phase, then verdicts per minute and the share of the time in which the candidate worked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from kernelwright.kernels.candidate import Candidate
from kernelwright.sandbox.corpus_index import candidate_of, load_corpus
from kernelwright.sandbox.environment import describe_environment
from kernelwright.sandbox.selftest import open_selftest_bench
from kernelwright.sandbox.selftest_problems import problems
from kernelwright.sandbox.verify import Bench


def time_verdicts(bench: Bench, candidate: Candidate, phase: str, count: int) -> list[dict[str, object]]:
    """Return seconds, seconds worked and outcome of `count` verdicts, each in a cage that served nobody before."""
    rows = []
    for number in range(count):
        bench.retire()
        started = time.monotonic()
        verdict = bench.search(candidate) if phase == "search" else bench.confirm(candidate, lineage=f"try {number}")
        seconds = time.monotonic() - started
        rows.append({"phase": phase, "seconds": seconds, "worked_s": verdict.worked_s, "outcome": verdict.outcome})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3, help="verdicts for each candidate and phase")
    parser.add_argument("--candidates", type=int, default=3, help="honest C++ controls, one for each problem at most")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    posed = problems()
    honest = [e for e in load_corpus() if e.kind == "honest" and e.language == "cpp" and e.faster]
    chosen = list({entry.problem: entry for entry in reversed(honest)}.values())[: options.candidates]
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for entry in chosen:
            problem = posed[entry.problem]
            candidate = candidate_of(entry, problem.problem)
            with open_selftest_bench(problem, "bubblewrap", Path(folder), None) as bench:
                bench.search(candidate)  # builds it, starts the incumbent and calibrates
                for phase in ("search", "confirm"):
                    taken = time_verdicts(bench, candidate, phase, options.count)
                    rows += [{"problem": entry.problem, "candidate": entry.name, **row} for row in taken]
    report(rows, options.json)


def report(rows: list[dict[str, object]], as_json: bool) -> None:
    summary: dict[str, object] = {"machine": describe_environment(), "n": len(rows)}
    for phase in ("search", "confirm"):
        mine = [row for row in rows if row["phase"] == phase]
        seconds = [float(str(row["seconds"])) for row in mine]
        worked = sum(float(str(row["worked_s"])) for row in mine)
        for row in mine:
            name = f"{row['problem']} {row['candidate']}"
            print(f"{phase:8} {name:40} {float(str(row['seconds'])):6.2f} s  {row['outcome']}")
        summary[phase] = {
            "median_s": statistics.median(seconds), "max_s": max(seconds), "per_minute": 60 * len(mine) / sum(seconds),
            "candidate_works": worked / sum(seconds), "n": len(mine),
        }  # fmt: skip
        print(f"{phase}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s, n={len(mine)}")
        print(
            f"{60 * len(mine) / sum(seconds):.1f} a minute; the candidate works {worked / sum(seconds):.0%} of the time"
        )
    print(f"machine: {summary['machine']}")
    if as_json:
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
