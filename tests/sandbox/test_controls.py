"""Every control stops something: with it off an exploit gets through, with all on the same one does not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.profile import Ceilings
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.corpus_index import candidate_of, load_corpus
from kernelwright.sandbox.selftest import open_selftest_bench
from kernelwright.sandbox.selftest_problems import problems
from kernelwright.sandbox.verdict import Verdict
from kernelwright.sandbox.verify import Bench
from tests.sandbox.posed import load_evil, open_bench, pose, require_cage, when_quiet
from tests.sandbox.test_verify import OFF

pytestmark = [pytest.mark.cage, pytest.mark.alone]

GETS_THROUGH = {
    "hidden_shapes": "only_full_batches.cpp",
    "distributions": "only_normal.py",
    "guard_zones": "writes_around_its_output",
    "masks": "nan.py",
    "repeat_races": "restless.cpp",
    "sanitizer": "same_values.cpp",
    "watch_after": "works_when_idle.cpp",
    "watch_processes": "sleeping_child.py",
    "screens": "phones_home.cpp",
}
"""Control → an exploit of the corpus, or a file of tests/sandbox/evil, that nothing else stops."""
ELSEWHERE = {
    **dict.fromkeys(OFF.values(), "tests/sandbox/test_verify.py"),
}
LAYERED: dict[str, tuple[str, tuple[str, ...]]] = {
    "linear_time": ("together_only.cpp", ()),
    "stop_waiting": ("starts_early.cpp", ("watch_after", "watch_cpu", "linear_time")),
    "roofline": ("nothing_when_timed.cpp", ("judge_timed",)),
}
"""Control → an exploit, and what is off all the while because it would stop that one, too."""
TINY = Ceilings(
    dram_bytes_per_s=1e9, cache_bytes_per_s=1e9, fp32_flops_per_s=2e9, threads=1, working_set_bytes=100_000_000
)
"""What a machine slow enough for doing nothing to be a miracle would reach."""
IN_CONFIRM = ("hidden_shapes", "repeat_races", "sanitizer")
OFTEN = ("masks", "screens")
"""Tried whenever tests run; the others, which take ten seconds and more each, with --slow."""


def marked(controls: Iterable[str]) -> list[Any]:
    return [pytest.param(control, marks=() if control in OFTEN else pytest.mark.slow) for control in controls]


def play(name: str, controls: Controls, cache: Path, confirm: bool) -> Verdict:
    screened = name == GETS_THROUGH["screens"]  # what obfuscation hides from the screens must be stopped, too
    if "." in name:
        opened: contextlib.AbstractContextManager[Bench] = open_bench(pose(), cache, controls)
        candidate = load_evil(name, pose())
    else:
        entry = next(entry for entry in load_corpus() if entry.name == name)
        problem = problems()[entry.problem]
        opened = open_selftest_bench(problem, "bubblewrap", cache, None, controls, floor=0.05)
        candidate = candidate_of(entry, problem.problem)
    with opened as bench:
        return bench.confirm(candidate, screened=screened) if confirm else bench.search(candidate, screened)


def test_every_control_is_here() -> None:
    assert {f.name for f in fields(Controls)} == GETS_THROUGH.keys() | ELSEWHERE.keys() | LAYERED.keys()


@pytest.mark.parametrize("control", marked(GETS_THROUGH))
def test_with_one_control_off_an_exploit_gets_through(control: str, tmp_path: Path) -> None:
    require_cage()
    confirm = control in IN_CONFIRM
    caught = play(GETS_THROUGH[control], Controls(), tmp_path, confirm)
    assert caught.outcome != "faster", "with the control on it must be caught"
    passed = when_quiet(lambda: play(GETS_THROUGH[control], Controls(**{control: False}), tmp_path, confirm))
    assert passed.outcome == "faster", (passed.outcome, passed.reason)
    assert all(evaluation.status == "PASSED" for evaluation in passed.evaluations)
    assert passed.isolation == "L0", "a bench with a control off must not look like one that holds"


@pytest.mark.parametrize("control", marked(LAYERED))
def test_where_two_controls_stop_an_exploit_each_does(control: str, tmp_path: Path) -> None:
    require_cage()
    name, off = LAYERED[control]
    problem = pose(slow_incumbent=control != "stop_waiting")  # short calls: there are many to begin with early
    candidate = load_evil(name, problem)

    def search(*switched_off: str) -> Verdict:
        with open_bench(problem, tmp_path, Controls(**dict.fromkeys(switched_off, False))) as bench:
            bench._ceilings = TINY if control == "roofline" else None
            return bench.search(candidate, screened=False)

    caught = search(*off)
    assert caught.outcome != "faster", "with the control on it must be caught"
    passed = when_quiet(lambda: search(*off, control))
    assert passed.outcome == "faster", (passed.outcome, passed.reason, passed.comparison)
