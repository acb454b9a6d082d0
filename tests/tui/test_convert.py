"""`convert` as a user meets it: files, a loss report, nothing overwritten, the problem's code in a cage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.tui.cli import main
from tests.kernels.formats.sampling import SAMPLES

pytestmark = pytest.mark.cage


def convert(*words: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    code = main(["convert", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_task_becomes_a_dataset_with_a_loss_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SAMPLES / "gpu_mode/row_scale"
    code, report = convert(source, tmp_path / "o", "--to", "flashinfer-trace", capsys=capsys)
    assert code == 0 and report["from"] == "gpu-mode" and report["to"] == "flashinfer-trace"
    assert all(Path(path).is_file() for path in report["files"])  # type: ignore[attr-defined]
    assert {note["kind"] for note in report["notes"]} >= {"lost", "changed", "kept"}  # type: ignore[attr-defined]


def test_ours_is_the_default_and_goes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SAMPLES / "kernelbench/20_log.py"
    assert convert(source, tmp_path / "ours", capsys=capsys)[0] == 0
    assert (tmp_path / "ours/problem.json").is_file()
    code, report = convert(tmp_path / "ours", tmp_path / "back", "--to", "kernelbench", capsys=capsys)
    assert code == 0 and (tmp_path / "back/20_log.py").read_text() == source.read_text(), report


def test_a_lone_solution_is_converted_beside_its_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    posed, solved = SAMPLES / "kernelbench/7_norm_linear.py", SAMPLES / "kernelbench/7_norm_linear_new.py"
    code, report = convert(solved, tmp_path / "o", "--problem", posed, capsys=capsys)
    assert code == 0 and len(report["files"]) == 2  # type: ignore[arg-type]


def test_nothing_is_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "definition.json").write_text("mine")
    words = (SAMPLES / "sol_execbench", tmp_path, "--to", "sol-execbench")
    code, report = convert(*words, capsys=capsys)
    assert code == 2 and "exists already" in str(report)
    assert (tmp_path / "definition.json").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1
    assert convert(*words, "--force", capsys=capsys)[0] == 0


HOSTILE = """
import os, pathlib, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    for place in ({home!r}, {folder!r}):
        try:
            pathlib.Path(place, "was_here").write_text("x")
        except OSError:
            pass
    return [torch.randn(2, int(os.path.exists({secret!r})) + 3)]
def get_init_inputs():
    return []
"""


def test_a_problems_code_runs_in_a_cage_and_reaches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    problem = tmp_path / "1_evil.py"
    problem.write_text(HOSTILE.format(home=str(Path.home()), folder=str(tmp_path), secret=str(secret)))
    assert convert(problem, tmp_path / "o", capsys=capsys)[0] == 0
    assert not (tmp_path / "was_here").exists() and not (Path.home() / "was_here").exists()
    posed = json.loads((tmp_path / "o/problem.json").read_text())
    assert "d3" in posed["definition"]["axes"], "it saw no secret"


@pytest.mark.parametrize("content", ["def Model(", "class Model: pass\n", "x = 1\n"])
def test_broken_input_is_exit_4_with_a_remedy_and_writes_nothing(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_text(content)
    code, report = convert(path, tmp_path / "o", capsys=capsys)
    assert code == 4 and report["error"]["remedy"], report  # type: ignore[index]
    assert not (tmp_path / "o").exists()


def test_an_unknown_format_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = convert(SAMPLES / "sol_execbench", tmp_path / "o", "--to", "yaml", capsys=capsys)
    assert code == 2 and "flashinfer-trace" in str(report)
