"""What a profile of a trace costs beside HolisticTraceAnalysis: `python benchmarks/traces.py TRACE --hta PYTHON`.

Runs `kernelwright profile TRACE --json` and HTA's kernel and temporal breakdown (its default reader, one rank) in
turns, each in a process of its own, and compares CPU seconds (user and system) and peak resident memory as the kernel
counts them. Both run as they do for a user, with byte code cached: a first round does not count. PYTHON is an
interpreter of an environment with HolisticTraceAnalysis and pandas below 3; without it only ours is measured. With
several traces, growth is told: CPU seconds for each million of events.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HTA = """
import logging, sys, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_temporal_breakdown(visualize=False)
"""


class Cost(NamedTuple):
    cpu_s: float
    peak_mb: float


def measure(command: list[str], output: Path) -> Cost:
    """Run `command` with its stdout in `output` and return what it took. Raises RuntimeError when it fails."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with output.open("wb") as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{command[0]} failed: {errors.read()[-2000:].decode(errors='replace')}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(trace: Path, hta: str | None, rounds: int, folder: Path) -> dict[str, object]:
    """Measure ours and HTA in turns; return medians, and the medians of the rounds' ratios."""
    mine = [sys.executable, "-m", "kernelwright.tui", "profile", str(trace), "--json"]
    ours: list[Cost] = []
    theirs: list[Cost] = []
    for _ in range(1 + rounds):
        ours.append(measure(mine, folder / "ours"))
        if hta:
            theirs.append(measure([hta, "-c", HTA, str(trace), str(folder)], folder / "theirs"))
    ours, theirs = ours[1:], theirs[1:]
    told = json.loads((folder / "ours").read_text().splitlines()[-1])
    row: dict[str, object] = {"trace": trace.name, "events": told["events"], "kernels": told["kernels"], "n": rounds}
    for name, costs in (("ours", ours), ("hta", theirs)):
        for field in Cost._fields if costs else ():
            row[f"{name}_{field}"] = round(statistics.median(getattr(cost, field) for cost in costs), 2)
    if theirs:
        pairs = list(zip(theirs, ours, strict=True))
        row["times_less_cpu"] = round(statistics.median(b.cpu_s / a.cpu_s for b, a in pairs), 2)
        row["times_less_memory"] = round(statistics.median(b.peak_mb / a.peak_mb for b, a in pairs), 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta", metavar="PYTHON", help="interpreter with HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for trace in options.traces:
            row = compare(trace.resolve(), options.hta, options.rounds, Path(folder))
            millions = row["events"] / 1e6  # type: ignore[operator]
            row["ours_cpu_s_per_million"] = round(row["ours_cpu_s"] / millions, 2)  # type: ignore[operator]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
