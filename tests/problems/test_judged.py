"""Every problem's right, wrong and cheating solution goes before the judge itself, read as KernelBench files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.kernels.formats.table import read_any
from kernelwright.kernels.problem import Problem
from kernelwright.sandbox.attempts import Attempts
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.verify import Bench
from kernelwright.tui.commands.convert import caged_probe
from kernelwright.tui.commands.verify import weight_sets
from tests.sandbox.posed import require_cage

pytestmark = [pytest.mark.cage, pytest.mark.alone]
FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("[0-9]*/problem.py"))
HONEST = ("faster", "slower", "inconclusive")


def judge(bench: Bench, problem: Problem, path: Path) -> Verdict:
    """Return search's verdict on a solution file, confirm's where search says `faster`."""
    (candidate,) = read_any(path, caged_probe("bubblewrap"), problem).candidates
    verdict = bench.search(candidate)
    return bench.confirm(candidate, path.stem) if verdict.outcome == "faster" else verdict


def open_bench(folder: Path, cache: Path) -> tuple[Bench, Problem]:
    problem = read_any(folder / "problem.py", caged_probe("bubblewrap")).problem(None)
    bench = Bench(
        problem, problem_dir=folder, weights=weight_sets(problem, None), threads=1, cache_dir=cache,
        attempts=Attempts(), floor=0.05,
    )  # fmt: skip
    return bench, problem


def cases() -> Iterator[object]:
    for folder in FOLDERS:
        yield pytest.param(folder, marks=pytest.mark.slow, id=folder.name)


@pytest.mark.parametrize("folder", cases())
def test_right_wrong_and_cheating_are_told_apart(folder: Path, tmp_path: Path) -> None:
    require_cage()
    bench, problem = open_bench(folder, tmp_path)
    with bench:
        right = judge(bench, problem, folder / "right.py")
        assert right.outcome in HONEST, ("right", right.outcome, right.reason)
        wrong = judge(bench, problem, folder / "wrong.py")
        assert wrong.outcome in ("incorrect", "invalid"), ("wrong", wrong.outcome, wrong.reason)
        cheating = judge(bench, problem, folder / "cheating.py")
        assert cheating.outcome != "faster", ("cheating", cheating.reason, cheating.comparison)


def test_there_are_forty_and_more() -> None:
    assert len(FOLDERS) >= 40
