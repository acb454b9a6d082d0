"""A small problem of every op, for tests that run slots in this process beside the judge's gates."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.problem import PrecisionPolicy, Problem
from kernelwright.kernels.registry import op_of

sys.path.append(str(Path(__file__).parents[1] / "kernels"))
from slots import small

HIGH = 16
"""Tokens that families claim."""


def pose_small(op_type: str, policy: PrecisionPolicy | None = None) -> Problem:
    """Return the problem of a small shape of `op_type`: 1 to 16 tokens, timed at 4."""
    definition = small(op_type)
    op = op_of(definition)
    contract = op.contract(definition)
    sizes = {"T": 4, "B": 2 if op_type.endswith("prefill_attention") else 4, "MB": 5, "PAGES": 20, "P": 96}
    return Problem(
        target=None,
        definition=definition,
        contract=contract,
        incumbent=op.incumbent(definition),
        workloads=(),
        ranges={contract.token_axis: AxisRange(low=1, high=HIGH)},
        timed_axes={a: n for a, n in sizes.items() if a in definition.axes and definition.axes[a].value is None},
        num_weight_sets=2,
        precision=policy or PrecisionPolicy(),
    )


def draw_small_sets(problem: Problem) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    axes = {**problem.timed_axes, "B1": problem.timed_axes.get("B", 1) + 1}
    op = op_of(problem.definition)
    drawn = [op.generate(problem.definition, axes, generator, "normal") for _ in range(problem.num_weight_sets)]
    return [{n: t[n] for n in problem.contract.weights} for t in drawn]  # type: ignore[misc]
