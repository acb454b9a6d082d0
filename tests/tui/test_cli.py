"""The front door as a user meets it: exit codes, errors that say what to do, one JSON object last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.tui.cli import VERBS, build_parser, main


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        build_parser(verb).parse_args([verb, "--help"])
    assert stopped.value.code == 0
    assert verb in capsys.readouterr().out


def test_an_unknown_verb_is_wrong_use() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["polish"])
    assert stopped.value.code == 2


def test_a_missing_model_is_named_with_a_remedy_and_json_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "none.gguf"
    code = main(["optimize", "--model", str(model), "--out", str(tmp_path / "s"), "--minutes", "1", "--json"])
    captured = capsys.readouterr()
    error = json.loads(captured.out.splitlines()[-1])["error"]
    assert code == 4 and str(model) in error["message"] and error["remedy"]
    assert "Traceback" not in captured.err
    assert not (tmp_path / "s").exists(), "nothing half-written"


def test_a_corrupt_model_is_broken_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "bad.gguf"
    model.write_bytes(b"GGUF" + bytes(64))
    code = main(["optimize", "--model", str(model), "--out", str(tmp_path / "s"), "--minutes", "1", "--json"])
    assert code == 4
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["remedy"]


@pytest.mark.parametrize("flag", ["--minutes", "--attempts", "--threads"])
def test_budgets_must_be_positive(flag: str, tmp_path: Path) -> None:
    assert main(["optimize", flag, "0", "--out", str(tmp_path / "s")]) == 2


def test_resume_needs_a_session(tmp_path: Path) -> None:
    assert main(["optimize", "--resume"]) == 2
    assert main(["optimize", "--resume", "--out", str(tmp_path / "none")]) != 0


def test_doctor_is_fast_enough_to_be_run_first_and_ends_with_json() -> None:
    command = [sys.executable, "-P", "-m", "kernelwright.tui", "doctor", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = json.loads(result.stdout.splitlines()[-1])
    assert {f["name"] for f in found["findings"]} >= {"python", "torch", "c++ compiler", "bubblewrap"}
    assert result.returncode == (3 if found["lacking"] else 0)


def test_doctor_names_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine without g++ and bubblewrap
    assert main(["doctor", "--json"]) == 3
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"c++ compiler", "bubblewrap"} <= set(found["lacking"])
    remedies = {f["name"]: f["remedy"] for f in found["findings"]}
    assert "apt-get install" in remedies["c++ compiler"] and "bubblewrap" in remedies["bubblewrap"]


@pytest.mark.parametrize(
    "option",
    [
        "--max-num-seqs 0",
        "--request-timeout 0",
        "--guard-repeats 0",
        "--port 99999",
        "--threads 0",
        "--shadow 2",
        "--kv-pages 0",
    ],
)
def test_serve_refuses_what_is_out_of_range_before_it_looks_for_a_model(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *option.split(), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)["error"]
    assert told["kind"] == "WrongUse" and "Input should be" in told["message"]
