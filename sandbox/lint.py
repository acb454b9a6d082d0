"""Lint of a problem: before anybody may solve it, kernels that do not do the work must fail on it.

Each null kernel (sandbox/nulls.py) goes through the judge's own gates on the search cases, as a candidate would. The
outputs must also be worth judging: far more spread than the gates allow, not all near zero, mostly finite, and
different for different draws. That each input matters is asked by the null kernels that drop one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from kernelwright.kernels.load import BoundSlot, load_implementation
from kernelwright.kernels.problem import Problem
from kernelwright.sandbox.cases import (
    Case,
    WeightSets,
    add_drawn_weights,
    allowed,
    complete_axes,
    draw_case,
    search_cases,
)
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.draw import Key, Tensors
from kernelwright.sandbox.exchange import Answer
from kernelwright.sandbox.fidelity import MAX_FACTOR
from kernelwright.sandbox.judge import Judge
from kernelwright.sandbox.nulls import IDLE, Call, Results, make_nulls

if TYPE_CHECKING:
    import torch

KEY, OTHER_KEY = Key(b"lint" * 8), Key(b"tnil" * 8)
"""Not secret: nobody solves a problem while it is linted."""
SPREAD = 100.0
"""Least standard deviation of an output, in units of the largest error the gates allow."""
RANGE = 0.01
MOST_NONFINITE = 0.01
ALL_ON = Controls()


class NullPass(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A null kernel that the gates let through in one case."""

    null: str
    case: str
    distribution: str


class LintReport(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What lint found. A null kernel may pass single cases (`passing`); it must not pass all of them (`accepted`)."""

    definition: str
    nulls: tuple[str, ...]
    """All null kernels that were tried."""
    idle: tuple[str, ...] = ()
    """Those that do none of the work; the others leave part of it out, which is right where that has no effect."""
    passing: tuple[NullPass, ...] = ()
    accepted: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Properties of the outputs that do not hold, and cases the incumbent itself fails."""

    @property
    def ok(self) -> bool:
        return not self.accepted and not self.faults


def lint(
    problem: Problem, problem_dir: Path, weights: Sequence[Mapping[str, torch.Tensor]], controls: Controls = ALL_ON
) -> LintReport:
    """Return what is wrong with `problem`; `weights` as for a Bench. Runs the incumbent in this process."""
    import torch

    whole, sets = add_drawn_weights(problem, weights, KEY)
    bench = _Workplace(problem, problem_dir, whole, Judge(problem, whole, controls))
    tried: dict[str, int] = {}
    passing: list[NullPass] = []
    faults: list[str] = []
    with torch.inference_mode():
        for case in _cases(problem, sets):
            call, tensors = bench.prepare(case)
            if case.distribution != "small":  # results are small there, as they should be
                faults += bench.find_faults(case, call, tensors)
            for name, make in make_nulls(call):
                tried[name] = tried.get(name, 0) + 1
                if bench.passes(case, tensors, call, make):
                    passing.append(NullPass(null=name, case=case.name, distribution=case.distribution))
    passed = [p.null for p in passing]
    accepted = tuple(name for name, count in tried.items() if passed.count(name) == count)
    return LintReport(
        definition=problem.definition.name, nulls=tuple(tried), passing=tuple(passing), accepted=accepted,
        idle=tuple(name for name in tried if name.split(" as ")[0] in IDLE or name.startswith("a copy of ")),
        faults=tuple(dict.fromkeys(faults)),
    )  # fmt: skip


def _cases(problem: Problem, sets: WeightSets) -> list[Case]:
    """Return the search cases and, where the problem allows it, small inputs: there a norm's eps shows."""
    small = [Case("small", dict(problem.timed_axes), 0, d) for d in allowed(problem, ("small",))[:1]]
    return search_cases(problem, problem.incumbent, sets, KEY) + small


class Incumbent:
    """The incumbent of a problem in this process. `hold` keeps one set of weights bound, as most calls share it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._implementation = load_implementation(problem.incumbent, None, problem.definition, problem.contract)
        self._held: dict[str, torch.Tensor] = {}
        self._bound: BoundSlot | None = None

    def hold(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._held, self._bound = dict(weights), self._implementation.bind(dict(weights))

    def run(self, inputs: Tensors) -> Results:
        """Return all outputs by name, those written in place too; `inputs` (weights among them) stay as they are."""
        contract = self._problem.contract
        own: Tensors = {
            n: v if isinstance(v, float | int) or n in contract.weights else v.clone() for n, v in inputs.items()
        }
        weights: dict[str, torch.Tensor] = {n: inputs[n] for n in contract.weights}  # type: ignore[misc]
        same = self._bound is not None and all(weights[n] is self._held.get(n) for n in weights)
        bound = self._bound if same and self._bound is not None else self._implementation.bind(weights)
        fresh = iter(bound(**own))
        outputs, aliases = self._problem.definition.outputs, contract.aliases
        return {n: own[aliases[n]] if n in aliases else next(fresh) for n in outputs}  # type: ignore[misc]


def run_slot(problem: Problem, inputs: Tensors) -> Results:
    """Return all outputs of the incumbent on `inputs`, weights among them."""
    return Incumbent(problem).run(inputs)


class _Workplace:
    """The judge, the weight sets and the incumbent of one problem."""

    def __init__(
        self, problem: Problem, problem_dir: Path, weights: list[dict[str, torch.Tensor]], judge: Judge
    ) -> None:
        self._problem, self._dir, self._weights, self._judge = problem, problem_dir, weights, judge
        self._incumbent = Incumbent(problem)

    def prepare(self, case: Case) -> tuple[Call, Tensors]:
        """Draw one call and run the incumbent on it; also return the inputs that are not weights."""
        definition = self._problem.definition
        axes = complete_axes(definition, case.axes, self._weights[0])
        tensors = draw_case(self._problem, self._dir, case, {**axes, **case.axes} if case.workload else axes, KEY)
        inputs = {**self._weights[case.slot], **tensors}
        inputs = {name: inputs[name] for name in definition.inputs}
        self._incumbent.hold(self._weights[case.slot])
        honest = self._incumbent.run(inputs)
        truth = self._judge.exact(case.slot, tensors)
        generator = KEY.generator("nulls", case.name)
        return Call(self._problem, inputs, truth, honest, self._incumbent.run, generator), tensors

    def passes(self, case: Case, tensors: Tensors, call: Call, make: object) -> bool:
        """Return whether the gates let a null kernel through; one that cannot run at all does not pass."""
        try:
            results = make()  # type: ignore[operator]
        except (RuntimeError, IndexError, ValueError):
            return False
        evaluation, _ = self._judge.judge(case, tensors, Answer(call.honest, ""), Answer(results, ""))
        return evaluation.status == "PASSED"

    def find_faults(self, case: Case, call: Call, tensors: Tensors) -> list[str]:
        """Return what is wrong with the case itself."""
        honest = Answer(call.honest, "")
        evaluation, reason = self._judge.judge(case, tensors, honest, honest)
        if reason:
            return [f"{case.distribution}: the incumbent itself fails: {reason}"]
        assert evaluation.correctness is not None
        faults = []
        if case.workload is None and not self._differs(case, call):
            faults.append(f"{case.distribution}: another draw gives the same outputs")
        for name, exact in call.truth.items():
            if exact.dtype.is_floating_point:
                allowed = MAX_FACTOR * evaluation.correctness.extra[name]["allowed_max"]
                faults += [f"{case.distribution}: {name} {fault}" for fault in find_dull(exact, allowed)]
        return faults

    def _differs(self, case: Case, call: Call) -> bool:
        import torch

        axes = complete_axes(self._problem.definition, case.axes, self._weights[0])
        other = self._judge.exact(case.slot, draw_case(self._problem, self._dir, case, axes, OTHER_KEY))
        return any(not torch.equal(exact, other[name]) for name, exact in call.truth.items())


def find_dull(exact: torch.Tensor, allowed: float) -> list[str]:
    """Return why an output (float64) says little; `allowed` is the largest error the gates let through."""
    finite = exact[exact.isfinite()].double()
    if not exact.numel():
        return ["is empty"]
    faults = []
    if 1 - finite.numel() / exact.numel() >= MOST_NONFINITE:
        faults.append("is not finite in 1 % or more of its elements")
    if not finite.numel():
        return faults
    if not float(finite.abs().max()) > RANGE:
        faults.append(f"stays within {RANGE} of zero")
    if exact.numel() > 1 and not float(finite.std(correction=0)) > SPREAD * allowed:
        faults.append(f"varies by less than {SPREAD:.0f} times the error that is allowed")
    return faults
