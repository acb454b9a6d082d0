"""Count how often a few repeats find each racy kernel, with and without jitter.

Run from the root: `PYTHONPATH=.src:. python tests/sandbox/races_found.py TRIALS`. One line a kernel on stdout.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.sandbox import trial
from tests.sandbox.posed import open_bench, pose
from tests.sandbox.test_races import try_one

KERNELS = (
    "race_halo.cpp", "race_sum.cpp", "race_missing_barrier.cpp", "racy.cpp", "race_split_k.cpp", "race_flag.cpp",
    "honest.cpp",
)  # fmt: skip
REPEATS, THREADS = 10, (2,)


@contextlib.contextmanager
def undisturbed(*_: Any) -> Iterator[None]:
    yield


def main() -> None:
    trials = int(sys.argv[1])
    trial.RACE_REPEATS, trial.RACE_THREADS = REPEATS, THREADS
    shaken = trial.jitter
    with tempfile.TemporaryDirectory() as folder, open_bench(pose(), Path(folder), threads=2) as bench:
        for name in KERNELS:
            counts = []
            for jitter in (undisturbed, shaken):
                trial.jitter = jitter
                counts.append(sum(try_one(bench, name, "try_races").settled for _ in range(trials)))
            print(f"{name}: found {counts[0]} of {trials} times, with jitter {counts[1]}", flush=True)


if __name__ == "__main__":
    main()
