"""From a foreign definition and its workloads to a Problem: what is timed, with which weights, on which inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from kernelwright.kernels.build import RunCommand
from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.definition import DTYPES, Definition, Workload
from kernelwright.kernels.formats.imported import Note, changed, kept, made_up
from kernelwright.kernels.formats.probe import Examined, examine
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import is_ours, op_of
from kernelwright.profiles.errors import BrokenInput

RING_BYTES = 64 << 20
"""Most that the weight sets drawn for an imported problem take."""
MAX_SETS = 8


def pose_foreign(
    definition: Definition, workloads: Sequence[Workload], incumbent: Candidate | None, run: RunCommand,
    timed: Workload | None = None,
) -> tuple[Problem, list[Note]]:  # fmt: skip
    """Return the problem and what had to be said about it.

    The largest workload is timed unless `timed` names one. Raises BrokenInput when the reference cannot be run on drawn
    inputs.
    """
    var = [name for name, axis in definition.axes.items() if axis.value is None]
    for workload in workloads:
        _check(definition, workload, var)
    if var and not workloads:
        raise BrokenInput(f"{definition.name}: no workload says how large {', '.join(var)} are", "add a workload")
    chosen = timed or max(workloads, key=lambda w: math.prod(w.axes.values()), default=None)
    axes = {name: chosen.axes[name] for name in var} if chosen else {}
    op = op_of(definition)
    notes: list[Note] = []
    distributions: tuple[str, ...] = ()
    if not is_ours(definition):
        smallest = min(workloads, key=lambda w: math.prod(w.axes.values()), default=None)
        small = {name: smallest.axes[name] for name in var} if smallest else {}
        seen = examine(definition, small, run)
        distributions = seen.finite()
        notes += _remarks(definition, seen)
    contract = op.contract(definition)
    ranges = _between(definition, workloads, var)
    for axis, span in ranges.items():
        notes.append(made_up(f"{definition.name}.{axis}", f"a confirm also tries sizes from {span.low} to {span.high}"))
    return Problem(
        target=None, definition=definition, contract=contract, incumbent=incumbent or op.incumbent(definition),
        workloads=tuple(workloads), ranges=ranges, timed_axes=axes,
        num_weight_sets=_num_sets(definition, contract.weights, axes), distributions=distributions,
    ), notes  # fmt: skip


def _between(definition: Definition, workloads: Sequence[Workload], var: Sequence[str]) -> dict[str, AxisRange]:
    """Return the range that the workloads span, where sizes between them are surely allowed.

    That is so for one var axis alone of which no constraint says more than that it is positive, where all inputs are
    drawn and none is a tensor of integers, which may be indices. Elsewhere only the workloads' shapes are tried.
    """
    stored = any(given.type == "safetensors" for workload in workloads for given in workload.inputs.values())
    indexed = any(spec.shape is not None and "float" not in spec.dtype for spec in definition.inputs.values())
    bound = [text for text in definition.constraints if not re.fullmatch(r"\s*\w+\s*(>\s*0|>=\s*1)\s*", text)]
    if len(var) != 1 or stored or indexed or any(re.search(rf"\b{var[0]}\b", text) for text in bound):
        return {}
    sizes = [workload.axes[var[0]] for workload in workloads]
    return {var[0]: AxisRange(low=min(sizes), high=max(sizes))} if min(sizes) < max(sizes) else {}


def _check(definition: Definition, workload: Workload, var: Sequence[str]) -> None:
    """Raise BrokenInput when a workload does not belong to `definition` or names a file outside its folder."""
    where = f"{definition.name}, workload {workload.uuid}"
    if set(workload.axes) < set(var):
        raise BrokenInput(f"{where}: no value for {', '.join(sorted(set(var) - set(workload.axes)))}", "add it")
    if unknown := set(workload.inputs) - set(definition.inputs):
        raise BrokenInput(f"{where}: no such inputs: {', '.join(sorted(unknown))}", "mend the workload")
    for name, given in workload.inputs.items():
        if given.type == "safetensors" and (given.path.startswith("/") or ".." in PurePosixPath(given.path).parts):
            raise BrokenInput(f"{where}, {name}: {given.path} leaves the folder", "name a file below it")
        if given.type == "scalar" and definition.inputs[name].shape is not None:
            raise BrokenInput(f"{where}, {name}: a number for a tensor", "mend the workload")


def _remarks(definition: Definition, seen: Examined) -> list[Note]:
    name = definition.name
    if not seen.deterministic:
        raise BrokenInput(
            f"{name}: the reference gives other results on equal inputs", "take the randomness (dropout?) out of it"
        )
    if seen.fp64_trouble:
        raise BrokenInput(
            f"{name}: the reference cannot be computed in float64: {seen.fp64_trouble[:400]}",
            "let its arithmetic follow the dtype of its inputs",
        )
    notes = []
    if seen.fp64_narrow:
        outputs = ", ".join(seen.fp64_narrow)
        notes.append(
            kept(f"{name}.reference", f"not float64 even when its inputs are: {outputs}; it is no exacter truth")
        )
    if not any(share <= 0.01 for share in seen.non_finite.values()):
        raise BrokenInput(f"{name}: the reference is not finite on any drawn inputs", "state the inputs' ranges")
    if dropped := [d for d, share in seen.non_finite.items() if share > 0.01]:
        notes.append(
            kept(f"{name}.distributions", f"not drawn, the reference is not finite there: {', '.join(dropped)}")
        )
    if seen.weak:
        notes.append(kept(f"{name}.reference", f"weak oracle: {seen.weak}"))
    ints = [n for n, s in definition.inputs.items() if s.shape is not None and "float" not in s.dtype]
    ranges = op_of(definition).contract(definition).int_ranges
    notes += [
        made_up(f"{name}.{n}", "no constraint bounds these integers; drawn from the default range of their type")
        for n in ints
        if n not in ranges and not any(n in c for c in definition.constraints)
    ]
    notes.append(changed(f"{name} inputs", "drawn anew from a secret key for every call, at the shapes given"))
    return notes


def _num_sets(definition: Definition, weights: Sequence[str], axes: dict[str, int]) -> int:
    """Return how many weight sets a timed batch walks."""
    each = sum(math.prod(definition.shape_of(n, axes)) * DTYPES[definition.inputs[n].dtype] for n in weights)
    return max(1, min(MAX_SETS, RING_BYTES // max(1, each)))
