"""What a case's conditioning lets an honest kernel err by is found, between the steps of a reference, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.kernels.formats.table import read_any
from kernelwright.kernels.problem import Problem
from kernelwright.sandbox import conditioning
from kernelwright.sandbox.cases import add_drawn_weights, confirm_cases, draw_case
from kernelwright.sandbox.conditioning import RandomRounding, find_wobble
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.judge import Judge, weigh
from kernelwright.tui.commands.convert import caged_probe
from kernelwright.tui.commands.verify import weight_sets

SAMPLE = Path(__file__).parents[1] / "kernels" / "formats" / "samples" / "kernelbench"
BIAS = torch.linspace(0.5, 1.5, 5, dtype=torch.float64)


def norm_of_bias(tensors: Any) -> dict[str, torch.Tensor]:
    y = tensors["x"].double() + BIAS
    return {"z": (y - y.mean(0)) / (y.var(0, correction=0) + 1e-5).sqrt()}


def test_what_is_lost_between_two_steps_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors: Any = {"x": torch.full((12, 5), 1e-40)}
    exact = norm_of_bias(tensors)
    assert float(find_wobble(norm_of_bias, exact, tensors)["z"].max()) > 1e-5
    monkeypatch.setattr(conditioning, "STEP_UNITS", 0)
    assert float(find_wobble(norm_of_bias, exact, tensors)["z"].max()) < 1e-12


def test_what_only_moves_values_is_not_rounded() -> None:
    x = torch.rand(6, 4, dtype=torch.float64)
    with RandomRounding(torch.Generator().manual_seed(1)):
        moved, computed = torch.cat([x.t().clone(), x.t()])[1:].reshape(-1).view(6, 7), x * 2
    assert torch.equal(moved, torch.cat([x.t(), x.t()])[1:].reshape(-1).view(6, 7))
    relative = (computed / (2 * x) - 1).abs()
    assert 0 < float(relative.max()) <= conditioning.STEP_UNITS * 2**-23


@pytest.fixture(scope="module")
def module() -> tuple[Problem, Callable[..., Any], Callable[..., Any]]:
    """Return a batch norm after a linear, the incumbent and an honest module that writes both out."""
    probe = caged_probe("bubblewrap")
    problem = read_any(SAMPLE / "7_norm_linear.py", probe).problem(None)
    (new,) = read_any(SAMPLE / "7_norm_linear_new.py", probe, problem).candidates
    runs = []
    for candidate in (problem.incumbent, new):
        namespace: dict[str, Any] = {}
        exec(compile(candidate.sources[0].content, candidate.sources[0].path, "exec"), namespace)
        runs.append(namespace["run"])
    return problem, runs[0], runs[1]


def fails(problem: Problem, incumbent: Callable[..., Any], kernel: Callable[..., Any], number: int) -> str:
    """Judge the denormal case of one key as a trial does: what is doubtful is drawn four times more."""
    key = Key(bytes([number]) * 32)
    whole, sets = add_drawn_weights(problem, weight_sets(problem, None), key)
    judge = Judge(problem, whole, Controls())
    case = next(c for c in confirm_cases(problem, problem.incumbent, sets, key) if c.distribution == "denormal")
    found = []
    for again in range(5):
        named = replace(case, name=f"{case.name}-{again}")
        tensors = draw_case(problem, Path(), named, dict(case.axes), key)
        given = {**whole[case.slot], **tensors}
        values = [given[name] for name in problem.definition.inputs]
        answers = [
            Answer(dict(zip(problem.definition.outputs, f(*values), strict=True)), "") for f in (incumbent, kernel)
        ]
        found.append(judge.judge(named, tensors, *answers))
        if not found[0][1]:
            return ""
    return weigh([evaluation for evaluation, _ in found], found[0][1])[1]


@pytest.mark.cage
def test_an_honest_module_passes_where_its_norm_sees_nothing_but_roundings(module: Any) -> None:
    problem, incumbent, new = module
    with torch.inference_mode():
        assert [fails(problem, incumbent, new, number) for number in range(20)] == [""] * 20


@pytest.mark.cage
def test_a_less_precise_one_fails_there_all_the_same(module: Any) -> None:
    problem, incumbent, _ = module

    def rounded(*values: Any) -> Any:
        return incumbent(
            *(v.bfloat16().to(v.dtype) if getattr(v, "dtype", None) is torch.float32 else v for v in values)
        )

    with torch.inference_mode():
        assert all(fails(problem, incumbent, rounded, number) for number in range(5))
