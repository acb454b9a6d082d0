"""How fast the judge is, how much of its time the candidate works, and how sharp it is: `python benchmarks/judge.py`.

Takes search and confirm verdicts of honest controls of the selftest, each built beforehand, in fresh cages. Prints one
line per candidate and phase, then verdicts per minute and the share of the time in which the candidate worked.
`--aa`, `--confirm-aa`: so many verdicts of incumbents against themselves. `--planted 3x20 5x20`: so many searches of a
kernel that does so many per cent less of the incumbent's work. `--count 0` leaves the rest out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kernelwright.kernels.candidate import Candidate
from kernelwright.sandbox.corpus_index import candidate_of, load_corpus
from kernelwright.sandbox.environment import describe_environment
from kernelwright.sandbox.selftest import open_selftest_bench, share
from kernelwright.sandbox.selftest_problems import SelftestProblem, count_planted_steps, planted, problems
from kernelwright.sandbox.verdict import Verdict
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


def parse_effect(text: str) -> tuple[float, int]:
    percent, _, trials = text.partition("x")
    return float(percent), int(trials)


def judge_against_itself(phase: str, trials: int, folder: Path) -> Iterator[Verdict]:
    """Yield verdicts of incumbents against themselves, in equal parts over the selftest's problems."""
    posed = problems()
    for number, problem in enumerate(posed.values()):
        with open_selftest_bench(problem, "bubblewrap", folder, None) as bench:
            for trial in range(share(trials, len(posed), number)):
                incumbent = problem.problem.incumbent
                yield bench.search(incumbent) if phase == "search" else bench.confirm(incumbent, lineage=f"{trial}")


def plant(percent: float, trials: int, folder: Path) -> Iterator[Verdict]:
    """Yield search verdicts of a kernel that does `percent` per cent less of the incumbent's work."""
    problem, candidate = planted(percent, count_planted_steps())
    with open_selftest_bench(SelftestProblem(problem, ({},)), "bubblewrap", folder, None) as bench:
        for _ in range(trials):
            yield bench.search(candidate)


def tell(title: str, verdicts: Iterator[Verdict]) -> dict[str, int]:
    """Print each verdict; return how often each outcome came."""
    outcomes: Counter[str] = Counter()
    for verdict in verdicts:
        outcomes[verdict.outcome] += 1
        timed = verdict.comparison
        numbers = f"{timed.ratio:.4f} [{timed.low:.4f}, {timed.high:.4f}] n={timed.n}, " if timed else ""
        floor = f"floor {timed.floor:.2%}, {timed.incumbent_us:.0f} us, " if timed else ""
        print(f"{title:12} {verdict.outcome:12} {numbers}{floor}{verdict.seconds:.1f} s", flush=True)
    print(f"{title}: {dict(outcomes)}", flush=True)
    return dict(outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3, help="verdicts for each candidate and phase")
    parser.add_argument("--candidates", type=int, default=3, help="honest C++ controls, one for each problem at most")
    parser.add_argument("--aa", type=int, default=0, help="searches of an incumbent against itself")
    parser.add_argument("--confirm-aa", type=int, default=0, help="confirms of an incumbent against itself")
    parser.add_argument("--planted", nargs="*", type=parse_effect, default=[], metavar="PERCENTxTRIALS")
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
    summary: dict[str, object] = {"machine": describe_environment()}
    summary |= report(rows) if rows else {}
    with tempfile.TemporaryDirectory() as folder:
        for phase, trials in (("search", options.aa), ("confirm", options.confirm_aa)):
            if trials:
                summary[f"aa_{phase}"] = tell(f"A/A {phase}", judge_against_itself(phase, trials, Path(folder)))
        for percent, trials in options.planted:
            summary[f"planted_{percent:+g}"] = tell(f"{percent:+g} %", plant(percent, trials, Path(folder)))
    print(f"machine: {summary['machine']}")
    if options.json:
        print(json.dumps(summary))


def report(rows: list[dict[str, object]]) -> dict[str, object]:
    """Print the times of all verdicts and return their summary."""
    summary: dict[str, object] = {"n": len(rows)}
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
    return summary


if __name__ == "__main__":
    main()
