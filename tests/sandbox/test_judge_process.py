"""The judge is a process of its own: caged, apart from clock and keys, and all that compares values."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, KernelwrightError
from kernelwright.sandbox.cage import open_cage
from kernelwright.sandbox.cases import Case
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.isolation import measure
from kernelwright.sandbox.judge_link import JudgeLink
from kernelwright.sandbox.weights import WeightBox
from tests.sandbox.posed import draw_sets, pose, require_cage

pytestmark = pytest.mark.cage
CASE = Case("one", {"T": 4}, 0, "normal")


def open_judge(problem: Problem) -> JudgeLink:
    require_cage()
    return JudgeLink(problem, WeightBox(draw_sets(problem)), Controls(), cage=open_cage("bubblewrap"), threads=1)


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeLink]:
    with open_judge(pose()) as link:
        yield link


@pytest.fixture
def inputs() -> dict[str, torch.Tensor | float]:
    return {"x": torch.randn(4, 256)}


def answer_of(inputs: dict[str, torch.Tensor | float]) -> Answer:
    from kernelwright.kernels.blocks import decode_q4_1

    dense = decode_q4_1(draw_sets(pose())[0]["w"], torch.float32)
    return Answer({"y": inputs["x"] @ dense.T}, "")


def test_it_is_another_process_in_a_cage_of_its_own(judge: JudgeLink, inputs: dict[str, torch.Tensor | float]) -> None:
    right = answer_of(inputs)
    evaluation, reason = judge.judge(CASE, inputs, right, right)
    assert (evaluation.status, reason) == ("PASSED", "")
    assert judge.pid not in (None, os.getpid())
    level, facts = measure(judge.pid or 0)
    assert level == "L3", facts


def test_it_finds_one_wrong_element(judge: JudgeLink, inputs: dict[str, torch.Tensor | float]) -> None:
    right = answer_of(inputs)
    wrong = right.results["y"].clone()
    wrong[2, 17] += 0.5
    evaluation, reason = judge.judge(CASE, inputs, right, Answer({"y": wrong}, ""))
    assert evaluation.status == "INCORRECT_NUMERICAL" and reason
    assert judge.find_disagreement([right, right], [right, Answer({"y": wrong}, "")]) == "timed"
    assert judge.find_disagreement([right], [right]) == ""


def test_a_reference_that_fails_is_a_broken_problem(inputs: dict[str, torch.Tensor | float]) -> None:
    problem = pose()
    text = problem.definition.reference + "\n\ndef run(x, w):\n    raise ZeroDivisionError('no')\n"
    contract = problem.contract.model_copy(update={"linear": False})
    broken = problem.model_copy(
        update={"definition": problem.definition.model_copy(update={"reference": text}), "contract": contract}
    )
    right = answer_of(inputs)
    with open_judge(broken) as link, pytest.raises(BrokenInput, match="ZeroDivisionError"):
        link.judge(CASE, inputs, right, right)


def test_a_judge_that_is_killed_is_a_broken_tool(inputs: dict[str, torch.Tensor | float]) -> None:
    right = answer_of(inputs)
    with open_judge(pose()) as link:
        link.judge(CASE, inputs, right, right)
        os.kill(link.pid or 0, 9)
        with pytest.raises(KernelwrightError, match="judge"):
            link.judge(CASE, inputs, right, right)
