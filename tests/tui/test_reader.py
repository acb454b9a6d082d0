"""The view says what the ledger says: of a finished session, a live one, a killed one and a damaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.agent import events
from kernelwright.agent.ledger import Ledger
from kernelwright.profiles.errors import BrokenInput, WrongUse
from kernelwright.tui.reader import SessionReader
from kernelwright.tui.view import PHASES


def test_a_finished_session(finished: Path) -> None:
    view = SessionReader(finished).read()
    assert (view.standing, view.reason) == ("done", "every target was tried")
    assert [phase.name for phase in view.phases] == list(PHASES)
    assert {phase.state for phase in view.phases} == {"done"}
    assert next(phase for phase in view.phases if phase.name == "profile").seconds == 17.9
    assert next(phase for phase in view.phases if phase.name == "solve").count == "7/7"
    assert view.profile is not None and view.profile.step_ms_unprofiled == 80.6
    assert len(view.targets) == 16 and view.targets[0].definition == "q4_1_gate_up_silu_f1536_h576"
    assert view.outcomes()["incorrect"] == 7 and sum(view.outcomes().values()) == len(view.attempts) == 63
    assert view.gate.passed and view.gate.speed["decode"].interval == (3.31, 3.42)
    assert view.gate.state == "pass" and view.gate.incumbent_tok_s == 12.41 and view.gate.speed["decode"].n == 40
    assert list(view.gate.fidelity) == ["decode", "decode_batch8", "prefill"]
    assert view.gate.fidelity["prefill"].mean_kld == 3.1e-9 and view.gate.bytes_per_token["patched"] == 96_400_000
    assert view.gate.accepted[0].num_hits == 3840 and view.gate.commit is not None
    assert view.progress is None and view.running_since is None and view.budget_s == 900.0
    assert view.unreadable == ()


def test_the_best_rests_on_a_confirm_where_there_is_one(live: Any) -> None:
    best = {entry.definition: entry for entry in SessionReader(live.ledger.folder).read().best}
    first = best["q4_1_gate_up_silu_f1536_h576"]
    assert first.standing == "accepted" and first.attempt is not None and first.attempt.phase == "confirm"
    assert best["q4_1_linear_n960_k576"].standing == "searched"
    assert best["add_rmsnorm_h576"].standing == "none" and best["add_rmsnorm_h576"].tried == 0
    assert "q4_1_attention_block_h576_q9_kv3_d64_p16" not in best, "an excluded target is not worked on"


def test_a_live_session_is_followed(live: Any) -> None:
    reader = SessionReader(live.ledger.folder)
    view = reader.read()
    assert view.standing == "live" and view.running_since is not None
    assert view.seconds_at(view.running_since + 60) == view.seconds + 60
    solve = next(phase for phase in view.phases if phase.name == "solve")
    assert (solve.state, solve.count, solve.budget_s) == ("running", "3/7", 50.0)
    assert view.progress is not None and view.progress.done == 2
    assert reader.read() is view, "nothing was written, nothing is read"
    live.emit(events.ProgressMade, phase="solve:q4_1_linear_n960_k576", done=3, total=24)
    after = reader.read()
    assert after is not view and after.seq == view.seq + 1
    assert after.progress is not None and after.progress.done == 3


def test_a_killed_session_is_told_from_one_that_ended(scripted: Any, tmp_path: Path) -> None:
    session = scripted.write_live(tmp_path)
    session.ledger.close()  # what is left of a process that was killed: no end recorded, the folder free
    view = SessionReader(tmp_path).read()
    assert view.standing == "killed" and view.running_since is None and view.progress is None
    assert next(phase for phase in view.phases if phase.name == "solve").state == "interrupted"


def test_time_between_two_runs_does_not_count(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        for event in (
            events.SessionStarted(at=1000.0),
            events.PhaseStarted(at=1040.0, phase="profile"),
            events.SessionResumed(at=9000.0),
            events.SessionEnded(at=9030.0, status="done"),
        ):
            ledger.emit(event)
        ledger.set_status("done")
    view = SessionReader(tmp_path).read()
    assert view.seconds == 70.0 and view.seconds_at(1e9) == 70.0


def test_an_empty_session(tmp_path: Path) -> None:
    Ledger.create(tmp_path, {}).close()
    view = SessionReader(tmp_path).read()
    assert view.attempts == view.targets == view.best == view.events == ()
    assert view.seq == 0 and {phase.state for phase in view.phases} == {"waiting"} and view.budget_s is None


def test_a_result_of_another_version_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        for step, result in (("profile", {"schema_version": 9}), ("gate", {"engine": "fast"})):
            ledger.begin_step(step)
            ledger.finish_step(step, result)
    view = SessionReader(tmp_path).read()
    assert view.unreadable == ("profile", "gate") and view.profile is None and view.gate.speed == {}


def test_no_session_and_damaged_records_are_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="no folder"):
        SessionReader(tmp_path / "nowhere")
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    with Ledger.open(copy, readonly=True) as ledger:
        step = ledger.steps()[2]
        assert step.result is not None
        ledger.objects.path_of(step.result).write_text("{}")
    with pytest.raises(BrokenInput, match="was changed"):
        SessionReader(copy).read()


def test_reading_needs_no_textual() -> None:
    program = (
        "import sys\n"
        "from kernelwright.tui import attempt_view, plots, reader, words\n"
        "print([m for m in ('textual', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONSAFEPATH": "1"}
    )
    assert done.stdout.strip() == "[]", done.stderr
