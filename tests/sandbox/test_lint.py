"""Lint refuses problems that null kernels solve, and accepts those of every op."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.kernels.registry import OPS
from kernelwright.profiles.errors import KernelwrightError
from kernelwright.sandbox.cage import open_cage
from kernelwright.sandbox.cases import Case
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.judge_link import JudgeLink, lint_caged
from kernelwright.sandbox.lint import LintReport, find_dull, lint

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent / "weak_ops"))
from small_problems import draw_small_sets, pose_small
from weak_op import pose_weak

from kernelwright.sandbox.weights import WeightBox

LOOSE = Controls(relative_gate=False)
"""The usual tolerance of 1e-2, which these problems were once accepted with."""


def lint_weak(name: str, columns: int, controls: Controls | None = None) -> LintReport:
    return lint(pose_weak(name, columns), Path(), [{}], controls or Controls())


@pytest.mark.parametrize(
    "op_type",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("q4_k_mlp_block", "q6_k_mlp_block") else ())
        for name in OPS
    ],
)
def test_every_op_makes_a_problem_that_null_kernels_fail(op_type: str) -> None:
    problem = pose_small(op_type)
    report = lint(problem, Path(), draw_small_sets(problem))
    assert report.ok, report
    assert len(report.nulls) >= 10
    dropped = {null.removesuffix(" dropped") for null in report.nulls if null.endswith(" dropped")}
    assert dropped == set(problem.definition.inputs), "each input and weight is dropped once"


def test_a_mean_of_many_normals_is_refused() -> None:
    report = lint_weak("row_mean", 65536)
    assert not report.ok and any("of zero" in fault for fault in report.faults), report
    loose = lint_weak("row_mean", 65536, LOOSE)
    assert ("zeros as y", "normal") in {(p.null, p.distribution) for p in loose.passing}


def test_a_softmax_over_many_values_is_refused() -> None:
    report = lint_weak("softmax", 4096)
    assert not report.ok and any("y stays within 0.01 of zero" in fault for fault in report.faults), report
    loose = lint_weak("softmax", 4096, LOOSE)
    assert {"zeros as y", "its mean as y"} <= {p.null for p in loose.passing if p.distribution == "normal"}


def test_shifted_inputs_catch_the_copy_that_passes_for_a_norm() -> None:
    loose = lint_weak("layer_norm", 65536, LOOSE)
    passed = {p.distribution for p in loose.passing if p.null == "a copy of x as y"}
    assert passed == {"normal"}
    assert "a copy of x as y" not in loose.accepted
    strict = lint_weak("layer_norm", 512)
    assert "a copy of x as y" in strict.nulls and not strict.accepted


def test_an_input_without_effect_is_refused() -> None:
    report = lint_weak("unused", 64)
    assert "z dropped" in report.accepted and not report.ok


def test_outputs_that_are_not_finite_are_refused() -> None:
    assert any("not finite" in fault for fault in lint_weak("infinite", 64).faults)


def test_outputs_that_never_change_are_refused() -> None:
    report = lint_weak("constant", 64)
    assert any("another draw" in fault for fault in report.faults)
    assert {"its mean as y", "x dropped", "bfloat16 inputs"} <= set(report.accepted)


def test_a_policy_that_allows_a_rounding_does_not_ask_that_it_fails() -> None:
    problem = pose_small("f32_linear", PrecisionPolicy(allow_int8_activations=True))
    report = lint(problem, Path(), draw_small_sets(problem))
    assert "int8 activations" not in report.nulls and "TF32 inputs" in report.nulls


def test_dull_outputs_are_told_why() -> None:
    spread = torch.randn(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert find_dull(spread, 1e-3) == []
    assert "100 times" in find_dull(spread, 0.1)[0]
    assert "of zero" in find_dull(spread / 1000, 1e-9)[0]
    spread[:2] = torch.nan
    assert "not finite" in find_dull(spread, 1e-3)[0]
    assert find_dull(torch.zeros(0, dtype=torch.float64), 1.0) == ["is empty"]
    assert find_dull(torch.ones((), dtype=torch.float64), 1e-3) == [], "a single number has no spread"


@pytest.mark.cage
def test_a_problem_is_linted_in_a_cage_as_here() -> None:
    problem, cage = pose_small("add_rmsnorm"), open_cage("bubblewrap")
    weights = draw_small_sets(problem)
    assert lint_caged(problem, weights, cage=cage, threads=1) == lint(problem, Path(), weights)


@pytest.mark.cage
def test_a_judge_that_has_linted_judges_nobody() -> None:
    problem = pose_small("add_rmsnorm")
    box = WeightBox(draw_small_sets(problem))
    with JudgeLink(problem, box, Controls(), cage=open_cage("bubblewrap"), threads=1) as link:
        assert link.lint().ok
        with pytest.raises(KernelwrightError, match="the judge failed"):
            link.judge(Case("normal", dict(problem.timed_axes), 0, "normal"), {}, Answer({}, ""), Answer({}, ""))
    box.close()
