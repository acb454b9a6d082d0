"""Cases: the calls a candidate is judged by. Public ones from the problem, hidden ones drawn inside its ranges."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.definition import Definition, StoredInput, Workload
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.draw import Key, Tensors, draw_activations, draw_weights

if TYPE_CHECKING:
    import torch

SEARCH_DISTRIBUTIONS = ("normal", "outliers", "shifted")
CONFIRM_DISTRIBUTIONS = (
    "normal", "uniform", "lognormal", "shifted", "outliers", "needle", "large", "small",
)  # fmt: skip
ZERO_MEAN = ("normal", "uniform", "large", "small")


@dataclass(frozen=True, slots=True)
class Case:
    """One call to come: where, with which weights, and what its results must satisfy."""

    name: str
    axes: dict[str, int]
    slot: int
    """Index of the weight set."""
    distribution: str
    """`stored` for captured activations, `nonfinite` for a single NaN."""
    workload: Workload | None = None

    @property
    def zero_mean(self) -> bool:
        return self.distribution in ZERO_MEAN

    @property
    def bit_exact(self) -> bool:
        return self.distribution == "exact"


@dataclass(frozen=True, slots=True)
class WeightSets:
    """How many weight sets there are: `model` from the engine, then `drawn` generated ones, then `exact` ones."""

    model: int
    drawn: int
    exact: int

    @property
    def exact_slot(self) -> int:
        return self.model + self.drawn


def covered_ranges(problem: Problem, candidate: Candidate) -> dict[str, AxisRange] | None:
    """Return the problem's ranges narrowed to what the candidate claims; None when they do not meet."""
    ranges = {}
    for axis, wide in problem.ranges.items():
        own = candidate.ranges.get(axis, wide)
        low, high = max(wide.low, own.low), min(wide.high, own.high)
        if low > high:
            return None
        ranges[axis] = AxisRange(low=low, high=high)
    return ranges


def search_cases(problem: Problem, candidate: Candidate, sets: WeightSets, key: Key) -> list[Case]:
    """Return public workloads and a few distributions at the timed shape."""
    rng = random.Random(key.seed("search"))
    timed = dict(problem.timed_axes)
    cases = _public_cases(problem, candidate, sets, rng)
    cases += [Case(f"{d}", timed, rng.randrange(sets.model + sets.drawn), d) for d in SEARCH_DISTRIBUTIONS]
    if sets.exact:
        cases.append(Case("exact", timed, sets.exact_slot, "exact"))
    return cases


def confirm_cases(problem: Problem, candidate: Candidate, sets: WeightSets, key: Key) -> list[Case]:
    """Return public cases, then every distribution over hidden shapes: both ends, neighbours, and some inside."""
    rng = random.Random(key.seed("confirm"))
    ranges = covered_ranges(problem, candidate) or {}
    shapes = hidden_shapes(problem, ranges, rng)
    any_slot = sets.model + sets.drawn
    cases = _public_cases(problem, candidate, sets, rng)
    for i, distribution in enumerate(CONFIRM_DISTRIBUTIONS * 2):
        cases.append(Case(f"hidden-{i}", shapes[i % len(shapes)], rng.randrange(any_slot), distribution))
    for i, shape in enumerate(shapes):
        cases.append(Case(f"hidden-shape-{i}", shape, rng.randrange(any_slot), "normal"))
        if sets.exact:
            cases.append(Case(f"hidden-exact-{i}", shape, sets.exact_slot, "exact"))
    cases.append(Case("hidden-nonfinite", shapes[-1], rng.randrange(any_slot), "nonfinite"))
    return cases


def hidden_shapes(
    problem: Problem, ranges: Mapping[str, AxisRange], rng: random.Random, count: int = 3
) -> list[dict[str, int]]:
    """Return axis values inside `ranges`: all lows, all highs, then mixes of neighbours of the ends and random ones."""
    base = dict(problem.timed_axes)
    shapes = [
        {**base, **{a: max(1, r.low) for a, r in ranges.items()}},
        {**base, **{a: r.high for a, r in ranges.items()}},
    ]
    for _ in range(count):
        shape = dict(base)
        for axis, r in ranges.items():
            picks = [max(r.low, 1), min(r.low + 1, r.high), max(r.high - 1, r.low), rng.randint(max(1, r.low), r.high)]
            shape[axis] = rng.choice(picks)
        shapes.append(shape)
    return [dict(t) for t in dict.fromkeys(tuple(sorted(s.items())) for s in shapes)]


def complete_axes(
    definition: Definition, axes: Mapping[str, int], weights: Mapping[str, torch.Tensor]
) -> dict[str, int]:
    """Return `axes` with the var axes filled in that others decide: those of the weights, B1 = B + 1, enough pages."""
    whole = dict(axes)
    for name, tensor in weights.items():
        for axis, size in zip(definition.inputs[name].shape or (), tensor.shape, strict=True):
            if definition.axes[axis].value is None:
                whole[axis] = size
    if "B1" in definition.axes and "B" in whole:
        if "T" in whole:  # every sequence has at least one new token
            whole["B"] = min(whole["B"], whole["T"])
        whole["B1"] = whole["B"] + 1
    if {"PAGES", "MB", "B"} <= set(whole):
        if "T" in whole and "B1" in whole:
            whole["MB"] = max(whole["MB"], -(-whole["T"] // (16 * whole["B"])))
        whole["PAGES"] = max(whole["PAGES"], whole["B"] * whole["MB"])
    missing = [a for a, axis in definition.axes.items() if axis.value is None and a not in whole]
    if missing:
        raise BrokenInput(
            f"{definition.name}: no value for the axes {', '.join(missing)}", "name them in the problem's timed_axes"
        )
    return whole


def small_case(problem: Problem, candidate: Candidate, key: Key) -> Case:
    """Return a case at the smallest of the hidden shapes, for what is done many times."""
    shapes = hidden_shapes(problem, covered_ranges(problem, candidate) or {}, random.Random(key.seed("small")))
    return Case("hidden-small", min(shapes, key=lambda s: sum(s.values())), 0, "normal")


def add_drawn_weights(
    problem: Problem, weights: Sequence[Mapping[str, torch.Tensor]], key: Key
) -> tuple[list[dict[str, torch.Tensor]], WeightSets]:
    """Return the model's weight sets, then generated ones, so that no result can lean on the model's own values."""
    whole = [dict(w) for w in weights]
    if not problem.contract.weights:
        return whole, WeightSets(len(whole), 0, 0)
    axes = complete_axes(problem.definition, problem.timed_axes, whole[0])
    kinds = ["normal", *(["exact"] if problem.contract.linear else [])]
    for kind in kinds:
        drawn = draw_weights(problem.definition, problem.contract, axes, kind, key.generator("weights", kind))
        whole.append(drawn)
    return whole, WeightSets(len(weights), 1, len(kinds) - 1)


def draw_case(
    problem: Problem, problem_dir: Path, case: Case, axes: dict[str, int], key: Key, fresh: bool = True
) -> Tensors:
    """Return the inputs of `case` that are not weights. Not `fresh`: equal for equal shape and distribution."""
    stored = _stored(problem, problem_dir, case.workload) if case.workload is not None else {}
    if set(stored) | set(problem.contract.weights) >= set(problem.definition.inputs):
        return stored  # a whole captured call: nothing is drawn, whose sizes need not suit a random one
    parts = ("case", case.name) if fresh else ("case", case.distribution, str(sorted(axes.items())))
    generator = key.generator(*parts)
    distribution = "normal" if case.distribution in ("stored", "nonfinite") else case.distribution
    tensors = draw_activations(problem.definition, problem.contract, axes, distribution, generator)
    tensors.update(stored)
    if case.distribution == "nonfinite":
        _plant_nan(problem, tensors, generator)
    return tensors


def _public_cases(problem: Problem, candidate: Candidate, sets: WeightSets, rng: random.Random) -> list[Case]:
    return [
        Case(w.uuid, dict(w.axes), rng.randrange(sets.model), "stored", w)
        for w in problem.workloads
        if candidate.covers(w.axes)
    ]


def _stored(problem: Problem, problem_dir: Path, workload: Workload) -> Tensors:
    from safetensors import safe_open

    found: Tensors = {}
    for name, spec in workload.inputs.items():
        if name in problem.contract.weights:
            continue
        if isinstance(spec, StoredInput):
            path = problem_dir / spec.path
            if not path.is_file():
                raise BrokenInput(f"workload {workload.uuid}: {path} is missing", "pose the problem again")
            with safe_open(path, framework="pt") as file:
                found[name] = file.get_tensor(spec.tensor_key)
        elif spec.type == "scalar":
            found[name] = float(spec.value)
    return found


def _plant_nan(problem: Problem, tensors: Tensors, generator: torch.Generator) -> None:
    """Put one NaN into the first float input that is neither a weight nor written in place."""
    import torch

    for name in problem.definition.inputs:
        value = tensors.get(name)
        if (
            isinstance(value, torch.Tensor)
            and value.dtype.is_floating_point
            and name not in problem.contract.aliases.values()
        ):
            index = int(torch.randint(0, value.numel(), (), generator=generator))
            value.view(-1)[index] = float("nan")
            return
