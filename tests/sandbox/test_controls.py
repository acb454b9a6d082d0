"""Every control stops something: with it off an exploit gets through, with all on the same one does not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.corpus_index import Entry, candidate_of, load_corpus
from kernelwright.sandbox.selftest import open_selftest_bench
from kernelwright.sandbox.selftest_problems import problems
from kernelwright.sandbox.verdict import Verdict
from tests.sandbox.posed import require_cage

pytestmark = pytest.mark.cage

GETS_THROUGH = {
    "fresh_inputs": "memo_by_fingerprint",
    "protect_inputs": "inputs_as_outputs",
    "stop_waiting": "waits_at_the_mailbox",
    "hidden_shapes": "even_tokens",
    "distributions": "expects_normal_inputs",
    "poison": "adds_to_its_output",
    "guard_zones": "writes_around_its_output",
    "read_twice": "detached_thread_at_once",
    "masks": "nan_everywhere",
    "relative_gate": "bf16_inputs",
    "check_every_row": "inside_the_matched_ratio",
    "judge_timed": "lazy_after_twelve",
    "repeat_races": "racy_norm",
    "sanitizer": "missing_barrier",
    "watch_cpu": "leftover_threads",
    "watch_after": "leftover_threads",
    "watch_processes": "hogs_in_another_process",
    "linear_time": "superbatch",
    "screens": "asks_the_network",
}
"""Control → an exploit that nothing else stops."""
ELSEWHERE = {"roofline": "tests/sandbox/test_ruling.py"}
"""Needs a time that no machine can have: tested on scripted ones."""
IN_CONFIRM = ("hidden_shapes", "repeat_races", "sanitizer")


def find_entry(name: str) -> Entry:
    return next(entry for entry in load_corpus() if entry.name == name)


def play(name: str, controls: Controls, cache: Path, confirm: bool) -> Verdict:
    entry = find_entry(name)
    problem = problems()[entry.problem]
    candidate = candidate_of(entry, problem.problem)
    with open_selftest_bench(problem, "bubblewrap", cache, None, controls) as bench:
        bench._floor = 0.05  # no calibration: these are large effects
        screened = name == GETS_THROUGH["screens"]  # an exploit that obfuscation hides from them must be stopped, too
        return bench.confirm(candidate, screened=screened) if confirm else bench.search(candidate, screened)


def test_every_control_is_here() -> None:
    assert {f.name for f in fields(Controls)} == GETS_THROUGH.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("control", GETS_THROUGH)
def test_with_one_control_off_an_exploit_gets_through(control: str, tmp_path: Path) -> None:
    require_cage()
    confirm = control in IN_CONFIRM
    caught = play(GETS_THROUGH[control], Controls(), tmp_path, confirm)
    assert caught.outcome != "faster", "with all controls on it must be caught"
    passed = play(GETS_THROUGH[control], Controls(**{control: False}), tmp_path, confirm)
    assert passed.outcome in ("faster", "inconclusive"), (passed.outcome, passed.reason)
    assert all(evaluation.status == "PASSED" for evaluation in passed.evaluations)
    assert passed.isolation == "L0", "a bench with a control off must not look like one that holds"
