"""The difference is taken against the parent, else the family's default point, else it is said why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelwright.agent.ledger import Ledger
from kernelwright.kernels.candidate import Candidate
from kernelwright.profiles.errors import BrokenInput
from kernelwright.tui.attempt_view import AttemptView, read_attempt
from kernelwright.tui.reader import SessionReader


def view_of(folder: Path, number: int) -> AttemptView:
    reader = SessionReader(folder)
    view = reader.read()
    return read_attempt(reader.ledger, view, view.attempts[number])


def judge_all(folder: Path, candidates: list[Candidate], scripted: Any) -> None:
    session = scripted.ScriptedSession(folder)
    for candidate in candidates:
        session.judge(candidate, "search", "faster", 2.0)
    session.ledger.close()


def test_against_the_family_default(scripted: Any, tmp_path: Path) -> None:
    judge_all(tmp_path, [scripted.scripted_candidate("d", 1), scripted.scripted_candidate("d", 8)], scripted)
    default, second = view_of(tmp_path, 0), view_of(tmp_path, 1)
    assert default.base is None and "default point" in default.base_name
    assert second.base == default.candidate and "family's default" in second.base_name
    assert second.changes == ("rows 1 → 8", "schedule static → guided")
    assert "-    #pragma omp parallel for schedule(static)" in second.diff
    assert "+    #pragma omp parallel for schedule(guided)" in second.diff
    assert second.verdict is not None and second.verdict.outcome == "faster"


def test_against_the_parent(scripted: Any, tmp_path: Path) -> None:
    parent = scripted.scripted_candidate("d", 2)
    with Ledger.create(tmp_path / "aside", {}) as ledger:
        digest = ledger.put(parent)
    child = scripted.scripted_candidate("d", 4, parent=digest)
    judge_all(tmp_path / "s", [scripted.scripted_candidate("d", 1), parent, child], scripted)
    shown = view_of(tmp_path / "s", 2)
    assert shown.base == parent and shown.changes == ("rows 2 → 4",)


def test_what_has_nothing_to_compare_with_says_so(scripted: Any, tmp_path: Path) -> None:
    orphan = scripted.scripted_candidate("d", 3, parent="9" * 64)
    judge_all(tmp_path, [orphan, scripted.scripted_candidate("d", 4, by_model=True)], scripted)
    assert "not in this session" in view_of(tmp_path, 0).base_name
    assert "written from nothing" in view_of(tmp_path, 1).base_name
    assert view_of(tmp_path, 1).diff == "" and view_of(tmp_path, 1).base is None


def test_an_attempt_in_flight_has_no_verdict(scripted: Any, tmp_path: Path) -> None:
    with Ledger.create(tmp_path, {}) as ledger:
        candidate = scripted.scripted_candidate("d", 1)
        ledger.begin_attempt("d", ledger.put(candidate), "templates", "rows", "search")
    assert view_of(tmp_path, 0).verdict is None


def test_a_changed_source_is_refused(scripted: Any, tmp_path: Path) -> None:
    judge_all(tmp_path, [scripted.scripted_candidate("d", 1)], scripted)
    with Ledger.open(tmp_path, readonly=True) as ledger:
        path = ledger.objects.path_of(ledger.attempts()[0].candidate)
    path.write_text(path.read_text().replace("dot_block", "hot_block"))
    with pytest.raises(BrokenInput, match="was changed"):
        view_of(tmp_path, 0)
