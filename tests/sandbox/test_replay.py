"""A verdict that a bench gave is judged again from its bundle: it holds, and what was forged in it is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.sandbox.bundle import Bundle, read_bundle, write_bundle
from kernelwright.sandbox.replay import Replay, replay
from kernelwright.sandbox.screens import screen
from kernelwright.sandbox.verdict import Verdict
from kernelwright.tui.cli import main
from tests.sandbox.posed import draw_sets, load_evil, open_bench, pose, require_cage

pytestmark = [pytest.mark.cage, pytest.mark.alone]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Bundles of two searches by one bench: of an honest kernel and of a wrong one."""
    require_cage()
    folder = tmp_path_factory.mktemp("replay")
    problem = pose()
    bundles = {}
    with open_bench(problem, folder) as bench:
        for name in ("honest.cpp", "wrong.py"):
            candidate = load_evil(name, problem)
            bundles[name] = write_bundle(folder / name, problem, candidate, bench.search(candidate))
    yield bundles


def failed(found: Replay) -> set[str]:
    return {check.name for check in found.checks if check.passed is False}


def forged(judged: dict[str, Path], target: Path, name: str = "honest.cpp", **values: object) -> Bundle:
    bundle = read_bundle(judged[name])
    verdict = Verdict.model_validate({**bundle.verdict.model_dump(), **values})
    return read_bundle(write_bundle(target, bundle.problem, bundle.candidate, verdict))


def again(bundle: Bundle, timed: bool = False) -> Replay:
    return replay(bundle, weights=draw_sets(bundle.problem), timed=timed)


def test_an_honest_verdict_holds_and_is_timed_beside(judged: dict[str, Path]) -> None:
    bundle = read_bundle(judged["honest.cpp"])
    assert bundle.verdict.outcome == "faster", bundle.verdict
    found = again(bundle, timed=True)
    assert found.passed, found
    told = {check.name: check.text for check in found.checks}
    assert "very binary" in told["build"] and "give the recorded errors" in told["judgement"]
    assert found.timing is not None and found.timing.recorded is not None and found.timing.outcome
    assert not found.accepted, "a search allows no patch"


@pytest.mark.slow
def test_a_rejection_is_found_again(judged: dict[str, Path]) -> None:
    bundle = read_bundle(judged["wrong.py"])
    assert bundle.verdict.outcome == "incorrect"
    found = again(bundle)
    assert found.passed, found


def test_a_rejection_of_honest_code_is_found_out(judged: dict[str, Path], tmp_path: Path) -> None:
    wrong = read_bundle(judged["wrong.py"])
    bundle = read_bundle(judged["honest.cpp"])
    verdict = wrong.verdict.model_copy(
        update={
            "candidate": digest_of(bundle.candidate),
            "binary": bundle.verdict.binary,
            "labels": (),
            "tripwires": (),
        }
    )
    slander = read_bundle(write_bundle(tmp_path / "b", bundle.problem, bundle.candidate, verdict))
    assert failed(again(slander)) == {"judgement"}


@pytest.mark.slow
def test_another_key_is_found(judged: dict[str, Path], tmp_path: Path) -> None:
    assert failed(again(forged(judged, tmp_path / "b", key="11" * 32))) == {"judgement"}


def test_another_binary_is_found(judged: dict[str, Path], tmp_path: Path) -> None:
    assert "build" in failed(again(forged(judged, tmp_path / "b", binary="22" * 32)))


@pytest.mark.slow
def test_a_binary_of_another_compiler_is_told_and_no_failure(judged: dict[str, Path], tmp_path: Path) -> None:
    environment = {"compiler": "g++ 1.0"}
    found = again(forged(judged, tmp_path / "b", binary="22" * 32, environment=environment))
    assert found.passed
    assert any(c.name == "build" and c.passed is None and "g++ 1.0" in c.text for c in found.checks)


def test_other_labels_than_the_screens_give_are_found(judged: dict[str, Path], tmp_path: Path) -> None:
    bundle = read_bundle(judged["honest.cpp"])
    noticed = bundle.verdict.tripwires
    shown = forged(judged, tmp_path / "a", labels=("custom",), tripwires=noticed)
    assert shown.verdict.labels == ("custom",) and failed(again(shown)) == set()
    assert failed(again(forged(judged, tmp_path / "c", labels=("custom",), tripwires=("made up",)))) == {"screens"}
    assert failed(again(forged(judged, tmp_path / "b", labels=("framework-wrap",), tripwires=()))) == {"screens"}
    assert screen(bundle.candidate, None).refused == ""


def test_what_was_tampered_with_is_not_run(judged: dict[str, Path]) -> None:
    bundle = read_bundle(judged["honest.cpp"])
    source = SourceFile(path="honest.cpp", content="#error never compiled\n")
    other = bundle.model_copy(update={"candidate": bundle.candidate.model_copy(update={"sources": (source,)})})
    assert {check.name for check in again(other).checks}.isdisjoint({"build", "judgement"})


@pytest.mark.slow
def test_without_the_weights_it_is_judged_on_others(judged: dict[str, Path]) -> None:
    found = replay(read_bundle(judged["honest.cpp"]), timed=False)
    assert found.passed
    assert any("on other weights" in check.text for check in found.checks)


def test_the_verb(judged: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-bundle", str(judged["honest.cpp"]), "--no-time", "--threads", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["passed"] and told["timing"] is None and told["outcome"] == "faster"
    text = (judged["honest.cpp"] / "verdict.json").read_text()
    edited = write_bundle(tmp_path / "b", *_nouns(judged["honest.cpp"]))
    (edited / "verdict.json").write_text(text.replace('"n": ', '"n": 1'))
    assert main(["verify-bundle", str(edited), "--no-run", "--json"]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not told["passed"]
    assert main(["verify-bundle", str(tmp_path), "--json"]) == 4
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["kind"] == "BrokenInput"


def _nouns(path: Path) -> tuple[Problem, Candidate, Verdict]:
    bundle = read_bundle(path)
    return bundle.problem, bundle.candidate, bundle.verdict
