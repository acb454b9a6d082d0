"""`verify` on problems of other tools: the judge's verdict, and their own result files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelwright.tui.cli import main
from tests.kernels.formats.sampling import SAMPLES

pytestmark = pytest.mark.cage
KB, FIB, GPU, SOL = (SAMPLES / n for n in ("kernelbench", "flashinfer_trace", "gpu_mode/row_scale", "sol_execbench"))
SOLUTIONS = FIB / "solutions/alice/norm"
SLOW = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(64))

    def forward(self, x):
        for _ in range(400):
            y = torch.sin(x) * self.gain
        return y


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
FAST = SLOW.replace("class Model(", "class ModelNew(").replace("range(400)", "range(1)").partition("def get_inputs")[0]


def verify(
    problem: Path, candidate: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, object]]:
    words = ["verify", str(problem), str(candidate), "--out", str(out), "--phase", "search", "--threads", "1", "--json"]
    code = main(words)
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.alone
def test_a_faster_module_is_found_faster_and_its_times_are_the_judges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "5_sine.py").write_text(SLOW)
    (tmp_path / "new.py").write_text(FAST)
    code, verdict = verify(tmp_path / "5_sine.py", tmp_path / "new.py", tmp_path / "o", capsys)
    assert (code, verdict["outcome"]) == (0, "faster"), verdict["reason"]
    (found,) = json.loads((tmp_path / "o/eval_results.json").read_text())["5"]
    assert found["compiled"] and found["correctness"]
    assert found["runtime"] == pytest.approx(verdict["comparison"]["candidate_us"] / 1e3)  # type: ignore[index]


EXPECTED = {
    "fused": (FIB, SOLUTIONS / "fused_torch.json", {"faster", "slower", "inconclusive"}),
    "wrong": (FIB, SOLUTIONS / "wrong_torch.json", {"incorrect"}),
    "triton": (FIB, SOLUTIONS / "triton_rows.json", {"unmeasured"}),
    "module": (KB / "7_norm_linear.py", KB / "7_norm_linear_new.py", {"faster", "slower", "inconclusive"}),
    "cuda": (KB / "20_log.py", KB / "20_log_cuda.py", {"unmeasured"}),
    "task": (GPU, GPU / "submission.py", {"faster", "slower", "inconclusive"}),
    "silu": (SOL, SOL / "solution.json", {"faster", "slower", "inconclusive"}),
}


@pytest.mark.alone
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in ("task", "silu", "module") else ()) for name in EXPECTED],
)
def test_each_format_is_judged_and_answered_in_its_own_words(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, candidate, outcomes = EXPECTED[name]
    code, verdict = verify(problem, candidate, tmp_path, capsys)
    assert verdict["outcome"] in outcomes, verdict["reason"]
    assert code == (0 if verdict["outcome"] == "faster" else 1)
    assert verdict["isolation"] == ("L0" if outcomes == {"unmeasured"} else "L3")
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    own = {FIB: "traces/norm/scaled_rmsnorm_h64.jsonl", GPU: "result.txt", SOL: "result.json"}
    assert files == {"verdict.json", own.get(problem, "eval_results.json")}


WRONG = """from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, factors, index, out = data
    out.copy_(x * factors["scale"][:, None] + factors["offset"] + x)
    return out
"""


def test_a_submission_that_reads_the_wrong_row_is_incorrect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(GPU, tmp_path / "t")
    (tmp_path / "t/submission.py").write_text(WRONG)
    code, verdict = verify(tmp_path / "t", tmp_path / "t/submission.py", tmp_path / "o", capsys)
    assert (code, verdict["outcome"]) == (1, "incorrect")
    assert "check: fail" in (tmp_path / "o/result.txt").read_text()


@pytest.mark.slow
def test_constructor_values_are_not_what_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "6_sine.py").write_text(SLOW)
    (tmp_path / "new.py").write_text(FAST.replace("* self.gain", ""))  # right only while the gains are ones
    code, verdict = verify(tmp_path / "6_sine.py", tmp_path / "new.py", tmp_path / "o", capsys)
    assert (code, verdict["outcome"]) == (1, "incorrect")


def test_a_solution_of_another_definition_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = verify(SOL, SOLUTIONS / "fused_torch.json", tmp_path, capsys)
    assert code == 4 and "scaled_rmsnorm_h64" in str(report)


def test_a_problem_that_zeros_solve_is_refused_by_a_confirm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "9_sine.py").write_text(SLOW.replace("return y", "return torch.relu(y - y.max())"))
    (tmp_path / "new.py").write_text(FAST.replace("return y", "return torch.zeros_like(y)"))
    words = ["verify", str(tmp_path / "9_sine.py"), str(tmp_path / "new.py"), "--threads", "1", "--json"]
    assert main(words) == 4
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert "zeros as output" in told["message"] and told["remedy"]
