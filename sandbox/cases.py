"""Cases: the calls a candidate is judged by. Public ones from the problem, hidden ones drawn inside its ranges."""

from __future__ import annotations

import math
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
from kernelwright.sandbox.matrix import AT_LEAST_SHAPE, NONFINITE, ZERO_MEAN, matrix_of

if TYPE_CHECKING:
    import torch

TILES = (8, 16, 32, 64)
"""Sizes kernels like to work in; one more or less is where their last tiles go wrong."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call to come: where, with which weights, and what its results must satisfy."""

    name: str
    axes: dict[str, int]
    slot: int
    """Index of the weight set."""
    distribution: str
    """`stored` for captured activations; else one of kernels/ops/draws.py or of matrix.NONFINITE."""
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
    kinds = allowed(problem, matrix_of(problem.definition.op_type).search)
    cases += [Case(d, timed, rng.randrange(sets.model + sets.drawn), d) for d in kinds]
    if sets.exact:
        cases.append(Case("exact", timed, sets.exact_slot, "exact"))
    return cases


def confirm_cases(problem: Problem, candidate: Candidate, sets: WeightSets, key: Key) -> list[Case]:
    """Return public cases, then `normal` and the exact case at every hidden shape, and the op's other distributions.

    Hidden shapes: both ends of the ranges, neighbours, and some inside. The distributions take them in turn.
    """
    rng = random.Random(key.seed("confirm"))
    ranges = covered_ranges(problem, candidate) or {}
    shapes = hidden_shapes(problem, ranges, rng)
    any_slot = sets.model + sets.drawn
    cases = _public_cases(problem, candidate, sets, rng)
    for i, shape in enumerate(shapes):
        cases.append(Case(f"hidden-shape-{i}", shape, rng.randrange(any_slot), allowed(problem, ("normal",))[0]))
        if sets.exact:
            cases.append(Case(f"hidden-exact-{i}", shape, sets.exact_slot, "exact"))
    stated = matrix_of(problem.definition.op_type).confirm
    finite = allowed(problem, tuple(d for d in stated if d not in NONFINITE))
    for i, distribution in enumerate((*finite, *(d for d in stated if d in NONFINITE))):
        shape = shapes[0] if distribution in AT_LEAST_SHAPE else shapes[-1 - i % len(shapes)]
        cases.append(Case(f"hidden-{i}", shape, rng.randrange(any_slot), distribution))
    return cases


def allowed(problem: Problem, distributions: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `distributions` on which the problem's reference is finite; else all on which it is."""
    if not problem.distributions:
        return distributions
    return tuple(d for d in distributions if d in problem.distributions) or problem.distributions


def hidden_shapes(
    problem: Problem, ranges: Mapping[str, AxisRange], rng: random.Random, count: int = 3
) -> list[dict[str, int]]:
    """Return axis values inside `ranges`: all lows, all highs, then mixes of what most often goes wrong.

    Those are neighbours of the ends, tiles plus or minus one, primes, and random values.
    """
    base = dict(problem.timed_axes)
    shapes = [
        {**base, **{a: max(1, r.low) for a, r in ranges.items()}},
        {**base, **{a: r.high for a, r in ranges.items()}},
    ]
    for _ in range(count):
        shapes.append({**base, **{axis: _pick(r, rng) for axis, r in ranges.items()}})
    return [dict(t) for t in dict.fromkeys(tuple(sorted(s.items())) for s in shapes)]


def _pick(axis: AxisRange, rng: random.Random) -> int:
    """Return a value in the range that a kernel is likely to get wrong; at least 1."""
    low = max(1, axis.low)
    inside = rng.randint(low, max(low, axis.high))
    near_tiles = [n for t in TILES for n in (t - 1, t + 1) if low <= n <= axis.high]
    kinds = [
        [low, min(low + 1, axis.high)],
        [max(axis.high - 1, low)],
        [_prime_from(inside, low)],
        [inside],
        near_tiles,
    ]
    return max(1, rng.choice(rng.choice([k for k in kinds if k])))


def _prime_from(number: int, low: int) -> int:
    """Return the largest prime up to `number` and not under `low`; `number` itself where there is none."""
    primes = (n for n in range(number, max(2, low) - 1, -1) if all(n % d for d in range(2, math.isqrt(n) + 1)))
    return next(primes, number)


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


def end_cases(problem: Problem, candidate: Candidate, key: Key) -> list[Case]:
    """Return the smallest and the largest hidden shape; they are one where the ranges hold no more."""
    shapes = hidden_shapes(problem, covered_ranges(problem, candidate) or {}, random.Random(key.seed("ends")))
    shapes.sort(key=lambda shape: sum(shape.values()))
    ends = {"hidden-small": shapes[0], **({"hidden-large": shapes[-1]} if len(shapes) > 1 else {})}
    return [Case(name, shape, 0, "normal") for name, shape in ends.items()]


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
    plain = case.distribution in ("stored", *NONFINITE)
    distribution = allowed(problem, ("normal",))[0] if plain else case.distribution
    tensors = draw_activations(problem.definition, problem.contract, axes, distribution, generator)
    tensors.update(stored)
    if case.distribution in NONFINITE:
        _plant(problem, tensors, generator, NONFINITE[case.distribution])
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
            whole = "float" not in problem.definition.inputs[name].dtype
            found[name] = int(spec.value) if whole else float(spec.value)
    return found


def _plant(problem: Problem, tensors: Tensors, generator: torch.Generator, value: float) -> None:
    """Put one `value` into the first float input that is neither a weight nor written in place."""
    import torch

    for name in problem.definition.inputs:
        tensor = tensors.get(name)
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.dtype.is_floating_point
            and name not in problem.contract.aliases.values()
        ):
            index = int(torch.randint(0, tensor.numel(), (), generator=generator))
            tensor.view(-1)[index] = value
            return
