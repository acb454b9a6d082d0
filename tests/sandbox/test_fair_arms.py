"""Before two arms are compared they have gone through the same: a call more shapes a heap, and a heap times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.sandbox.supervisor import Arm
from kernelwright.sandbox.timing import TimedLaunch, Timer
from kernelwright.sandbox.verify import Bench
from tests.sandbox.posed import open_bench, pose, require_cage

pytestmark = [pytest.mark.cage, pytest.mark.alone]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Nothing was compared on it before: the first comparison must be as fair as the others."""
    require_cage()
    with open_bench(pose(slow_incumbent=False), tmp_path) as opened:
        yield opened


class Diary:
    """What each arm was asked before it was timed, in order; `compared` holds the two diaries of each comparison."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[Arm, list[Any]] = defaultdict(list)
        self.compared: list[tuple[list[Any], list[Any]]] = []
        plan, go, warm, run = Arm.plan, Arm.go, Arm.warm, Timer.run

        def note_plan(arm: Arm, calls: Any, threads: int | None = None, *more: Any, **how: Any) -> None:
            self.of[arm].append(("plan", calls, threads, how))
            plan(arm, calls, threads, *more, **how)

        def note_go(arm: Arm, *how: Any, **more: Any) -> float:
            self.of[arm].append("go")
            return go(arm, *how, **more)

        def note_warm(arm: Arm, timeout_s: float) -> None:
            self.of[arm].append("warm")
            warm(arm, timeout_s)

        def note_run(timer: Timer, *how: Any, **more: Any) -> TimedLaunch:
            first, second = (self.of[exchange.arm] for exchange in timer._arms)
            self.compared.append((list(first), list(second)))
            result = run(timer, *how, **more)
            self.of.clear()
            return result

        for name, noting in (("plan", note_plan), ("go", note_go), ("warm", note_warm)):
            monkeypatch.setattr(Arm, name, noting)
        monkeypatch.setattr(Timer, "run", note_run)


@pytest.mark.parametrize("phase", ["search", "confirm", "calibrate"])
def test_both_arms_have_gone_through_the_same_before_they_are_timed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    diary = Diary(monkeypatch)
    if phase == "calibrate":
        bench.calibrate(launches=2, pairs=2)
    else:
        verdict = getattr(bench, phase)(bench.problem.incumbent)
        assert verdict.comparison is not None, verdict.reason
    assert len(diary.compared) >= {"search": 1, "confirm": 5, "calibrate": 2}[phase]
    for first, second in diary.compared:
        assert first == second
        assert first, "they were asked something"
