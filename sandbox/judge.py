"""Judge: fp64 truth for a case and what the gates say about two arms' results. Loads no candidate code.

The reference is the definition's own source, run on float64 casts of the very inputs the runners were given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.kernels.problem import Problem
from kernelwright.sandbox.cases import Case
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Tensors
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.fidelity import REVIEW_FACTOR, Finding, judge_output
from kernelwright.sandbox.matrix import matrix_of
from kernelwright.sandbox.verdict import Correctness, Evaluation, Status

if TYPE_CHECKING:
    import torch

TROUBLE = {
    "late": "it went on writing after it had said it was done",
    "guard": "it wrote outside its outputs",
    "unwritten": "it left part of its outputs unwritten, or built on what they held",
    "inputs": "it wrote to its inputs",
}
GATE = {
    "non-finite values": "NaN or infinity where there should be none, or none where there should be",
    "exact case": "its results are wrong",
    "error against the incumbent": "its results are wrong or less precise than allowed",
    "error in one slice": "part of its results is wrong or less precise than allowed",
    "a-priori bound": "its results are less precise than allowed",
    "integers differ": "its results are wrong",
    "tolerance": "its results are wrong",
    "untouched values": "it changed values that it should have left or copied as they are",
    "shape": "its results have the wrong shape",
    "dtype": "its results have the wrong type",
}
STATUS: dict[str, Status] = {"shape": "INCORRECT_SHAPE", "dtype": "INCORRECT_DTYPE"}
"""What a failed gate makes of an evaluation where it is not INCORRECT_NUMERICAL."""


BY_CHANCE = ("error against the incumbent", "error in one slice")
AGAIN = 4
"""How often a doubtful case is drawn anew."""
DENSE_BYTES = 1 << 30
"""Most that the dequantised weights of linear ops may take in the judge."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is right for one case: `exact` by output in float64, `magnitude` |A||B| of a linear op."""

    exact: dict[str, torch.Tensor]
    magnitude: torch.Tensor | None


class Judge:
    """Holds the problem and the weight sets (as stored), by slot."""

    def __init__(self, problem: Problem, weights: list[dict[str, torch.Tensor]], controls: Controls) -> None:
        self._problem = problem
        self._weights = weights
        self._controls = controls
        self._dense: dict[int, torch.Tensor] = {}
        namespace: dict[str, Any] = {}
        exec(
            compile(problem.definition.reference, "reference.py", "exec"), namespace
        )  # posed by us, not by a candidate
        self._reference = namespace["run"]

    def exact(self, slot: int, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Return the outputs by name in float64 (integers as they are)."""
        if self._problem.contract.linear:
            (name,) = self._problem.definition.outputs
            return {name: self._input(tensors).double() @ self._dense_weights(slot)}
        return self._run_reference(slot, tensors)

    def _run_reference(self, slot: int, tensors: Tensors) -> dict[str, torch.Tensor]:
        import torch

        given = {**self._weights[slot], **tensors}
        cast = {n: _double(given[n]) for n in self._problem.definition.inputs}
        with torch.inference_mode():
            results = self._reference(**cast)
        return dict(zip(self._problem.definition.outputs, results, strict=True))

    def judge(self, case: Case, tensors: Tensors, incumbent: Answer, candidate: Answer) -> tuple[Evaluation, str]:
        """Return the evaluation of one case and a coarse reason, '' when it passed."""
        if candidate.trouble:
            return Evaluation(workload=case.name, status="RUNTIME_ERROR"), TROUBLE[candidate.trouble]
        truth = Truth(self.exact(case.slot, tensors), self._magnitude(case.slot, tensors))
        found = rule_case(self._problem, self._controls, case, tensors, truth, (incumbent, candidate))
        if not by_chance(found[0]) or self._problem.contract.linear:
            return found
        beside = self._err_as_conditioned(incumbent, truth.exact, case.slot, tensors)
        return rule_case(self._problem, self._controls, case, tensors, truth, (beside, candidate))

    def _err_as_conditioned(
        self, incumbent: Answer, exact: Mapping[str, torch.Tensor], slot: int, tensors: Tensors
    ) -> Answer:
        """Return the incumbent's answer with each element at least as far off as roundings would make it.

        Where a case is ill-conditioned (a softmax over large scores, a batch norm of nearly equal rows) the incumbent
        may be right in one head by luck; what sixteen units in the last place of each input are worth, or four of what
        lies between the reference's steps, an honest kernel may err by, too. TF32 is off by thousands of them.
        """
        import torch

        from kernelwright.sandbox.conditioning import find_wobble

        wobble = find_wobble(lambda given: self._run_reference(slot, given), exact, tensors)
        results = {}
        for name, value in incumbent.results.items():
            if not value.dtype.is_floating_point:
                results[name] = value
                continue
            error = value.double() - exact[name]
            further = error.abs() < wobble[name]
            moved = exact[name] + torch.copysign(wobble[name], error)
            results[name] = torch.where(further, moved.to(value.dtype), value)
        return Answer(results, incumbent.trouble)

    def _magnitude(self, slot: int, tensors: Tensors) -> torch.Tensor | None:
        """Return |x||W| in float64 for a linear op, else None."""
        if not self._problem.contract.linear:
            return None
        return self._input(tensors).double().abs() @ self._dense_weights(slot).abs()

    def _input(self, tensors: Tensors) -> torch.Tensor:
        (name,) = [n for n in self._problem.definition.inputs if n not in self._problem.contract.weights]
        return tensors[name]  # type: ignore[return-value]

    def _dense_weights(self, slot: int) -> torch.Tensor:
        """Return W [K, N] in float64 of a linear op, read off the reference itself by feeding it the identity."""
        import torch

        if slot not in self._dense:
            (name,) = [n for n in self._problem.definition.inputs if n not in self._problem.contract.weights]
            size = self._problem.definition.shape_of(name, {"T": 1})[-1]
            (dense,) = self._run_reference(slot, {name: torch.eye(size, dtype=torch.float64)}).values()
            while self._dense and (len(self._dense) + 1) * dense.nbytes > DENSE_BYTES:
                self._dense.pop(next(iter(self._dense)))
            self._dense[slot] = dense
        return self._dense[slot]


def rule_case(
    problem: Problem, controls: Controls, case: Case, tensors: Tensors, truth: Truth, answers: tuple[Answer, Answer]
) -> tuple[Evaluation, str]:
    """Return what the gates say about (incumbent's, candidate's) answer to one case, and a coarse reason."""
    incumbent, candidate = answers
    rows = ... if controls.check_every_row else slice(1)
    findings = {}
    for name in problem.definition.outputs:
        before = tensors[problem.contract.aliases[name]] if name in problem.contract.aliases else None
        result, exact = candidate.results[name][rows], truth.exact[name][rows]
        if not controls.masks:
            result = blind(result, exact)
        finding = judge_output(
            result, incumbent.results[name][rows], exact,
            magnitude=None if truth.magnitude is None else truth.magnitude[rows], zero_mean=case.zero_mean,
            bit_exact=case.bit_exact, kind=matrix_of(problem.definition.op_type).kind_of(name),
            policy=problem.precision, terms=_terms(problem),
            before=before[rows] if before is not None else None,  # type: ignore[index]
        )  # fmt: skip
        loose = not controls.relative_gate and result.dtype.is_floating_point
        findings[name] = _loosely(result, exact, finding) if loose else finding
    failed = next((f.failed for f in findings.values() if f.failed), "")
    status = STATUS.get(failed, "INCORRECT_NUMERICAL") if failed else "PASSED"
    evaluation = Evaluation(workload=case.name, status=status, correctness=_correctness(findings))
    return evaluation, GATE[failed] if failed else ""


def blind(result: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return `result` with what is not finite replaced by what was expected: the masks switched off."""
    import torch

    if not result.dtype.is_floating_point or result.shape != expected.shape:
        return result
    return torch.where(result.isfinite(), result, expected.to(result.dtype))


def _terms(problem: Problem) -> int:
    """Return K of the reduction; 1 where the contract names none or it varies."""
    axis = problem.contract.reduction_axis
    return (problem.definition.axes[axis].value or 1) if axis else 1


def is_doubtful(evaluation: Evaluation) -> bool:
    """Return whether a failure may be chance: only errors against the incumbent's, none far off.

    Where a case is ill-conditioned (a softmax over large scores), both errors are few large random numbers.
    """
    return by_chance(evaluation, REVIEW_FACTOR)


def by_chance(evaluation: Evaluation, most: float = math.inf) -> bool:
    """Return whether it failed for errors against the incumbent's alone, none of them more than `most` times those."""
    outputs = evaluation.correctness.extra.values() if evaluation.correctness else ()
    failed = [output for output in outputs if output["gate"]]
    return bool(failed) and all(
        output["gate"] in BY_CHANCE and max(output["max_ratio"], output["rms_ratio"]) <= most for output in failed
    )


def weigh(evaluations: Sequence[Evaluation], reason: str) -> tuple[Evaluation, str]:
    """Return the median of several draws of one case: passed when most of them pass and the others are doubtful."""
    failed = [evaluation for evaluation in evaluations if evaluation.status != "PASSED"]
    hopeless = [evaluation for evaluation in failed if not is_doubtful(evaluation)]
    if hopeless:
        return hopeless[0], reason
    if 2 * len(failed) > len(evaluations):
        return failed[0], reason
    return next(evaluation for evaluation in evaluations if evaluation.status == "PASSED"), ""


def _double(value: torch.Tensor | float) -> torch.Tensor | float:
    import torch

    if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
        return value.to(torch.float64)
    return value


def _loosely(result: torch.Tensor, exact: torch.Tensor, finding: Finding) -> Finding:
    import torch

    close = torch.allclose(result.double(), exact.double(), rtol=1e-2, atol=1e-2, equal_nan=True)
    failed = "" if close else "tolerance"
    return Finding(failed, finding.errors.model_copy(update={"gate": failed}))


def _correctness(findings: Mapping[str, Finding]) -> Correctness:
    return Correctness(
        max_relative_error=max(f.errors.max_rel for f in findings.values()),
        max_absolute_error=max(f.errors.max_abs for f in findings.values()),
        extra={name: f.errors.model_dump(mode="json") for name, f in findings.items()},
    )
