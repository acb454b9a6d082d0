"""Pose problems: a target becomes a definition, workloads, ranges and an incumbent that a candidate can be judged on.

Only the workbench poses problems, never a proposer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kernelwright.engine.capture import CapturedWorkload
from kernelwright.engine.model_slots import ModelSlots
from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.definition import Definition, ScalarInput, StoredInput, Workload, WorkloadInput
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import op_of
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.target import Target

SMALL_BATCH = AxisRange(low=1, high=16)
"""Tokens (or sequences) of a decode step a kernel is asked to be right for; larger steps go to the incumbent."""
MAX_BLOCKS = 128
"""Pages of context (of 16 tokens) that hidden shapes reach: 2,048 tokens."""
TIMED_BLOCKS = 12
"""Pages at which attention is timed: 192 tokens, the middle of a request of 128 + 128."""
MAX_WORKLOADS = 3


def pose(target: Target, slots: ModelSlots, captured: list[CapturedWorkload], max_positions: int) -> Problem:
    """Return the problem of `target` at decode, batch 1. `max_positions` is the length of the engine's rope tables."""
    definition = slots.definitions()[target.definition]
    mine = [_workload(item) for item in captured if item.phase == target.phase]
    op = op_of(definition)
    contract = op.contract(definition)
    return Problem(
        target=digest_of(target),
        definition=definition,
        contract=contract,
        incumbent=op.incumbent(definition),
        workloads=tuple(mine[:MAX_WORKLOADS]),
        ranges=_ranges(definition, contract.token_axis),
        timed_axes=_timed_axes(definition, max_positions),
        num_weight_sets=slots.num_uses(definition.name),
    )


def write_problem(problem: Problem, folder: Path) -> Path:
    """Write `problem.json` and the definition in FlashInfer-Trace's form into `folder`; return the first."""
    folder.mkdir(parents=True, exist_ok=True)
    definition = problem.definition.model_dump(mode="json", exclude_none=True)
    (folder / "definition.json").write_text(json.dumps(definition, indent=1), encoding="utf-8")
    path = folder / "problem.json"
    path.write_text(problem.model_dump_json(indent=1), encoding="utf-8")
    return path


def _workload(item: CapturedWorkload) -> Workload:
    inputs: dict[str, WorkloadInput] = {n: StoredInput(path=str(item.path), tensor_key=k) for n, k in item.keys.items()}
    inputs |= {name: ScalarInput(value=value) for name, value in item.scalars.items()}
    return Workload(uuid=item.uuid, axes=dict(item.axes), inputs=inputs)


def _ranges(definition: Definition, token_axis: str) -> dict[str, AxisRange]:
    ranges = {token_axis: SMALL_BATCH}
    if "MB" in definition.axes:
        ranges["MB"] = AxisRange(low=1, high=MAX_BLOCKS)
    return ranges


def _timed_axes(definition: Definition, max_positions: int) -> dict[str, int]:
    """Return values for every axis that varies: one token, a context of 192 tokens, the engine's own tables."""
    values: Mapping[str, int] = {
        "T": 1, "B": 1, "B1": 2, "MB": TIMED_BLOCKS, "PAGES": 2 * TIMED_BLOCKS, "P": max_positions,
    }  # fmt: skip
    return {axis: values[axis] for axis, spec in definition.axes.items() if spec.value is None}
