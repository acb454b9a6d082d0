"""Check a pack's kernel at load: against its reference, on small random inputs, at the ends of its proven ranges.

This is not the judge (it runs in the engine's own process); it catches a kernel that does not fit this machine before
the engine calls itself healthy.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.registry import op_of

if TYPE_CHECKING:
    from torch import Tensor

    from kernelwright.engine.kernel import Kernel
    from kernelwright.kernels.definition import Definition, SlotContract
    from kernelwright.kernels.load import Implementation

RELATIVE_ERROR = 1e-4
"""Largest error over the largest value of the output: fp32 with a sum of a few thousand terms stays well below."""
POSITIONS = 512


def check_kernel(kernel: Kernel, definition: Definition, contract: SlotContract, most: dict[str, int]) -> str:
    """Return why `kernel` must not be served, or "" when its outputs agree with the reference.

    `most` caps the token axis by phase ("decode" where it counts sequences): the engine has no larger step.
    """
    assert kernel.implementation is not None
    generator = torch.Generator().manual_seed(0)
    axis = contract.token_axis
    cap = most["decode" if axis == "B" else "prefill"]
    claimed = kernel.ranges.get(axis, AxisRange(low=1, high=cap))
    low, high = max(1, claimed.low), min(claimed.high, cap)
    for tokens in sorted({low, high}) if low <= high else ():
        axes = _axes(definition, axis, tokens, kernel)
        inputs = op_of(definition).generate(definition, axes, generator, "normal")
        try:
            failure = _compare(kernel.implementation, definition, contract, inputs)
        except (RuntimeError, ValueError, TypeError) as error:
            failure = f"raises {type(error).__name__}: {error}"
        if failure:
            return f"at {axis}={tokens}: {failure}"
    return ""


def _axes(definition: Definition, token_axis: str, tokens: int, kernel: Kernel) -> dict[str, int]:
    """Return small values of all varying axes that fit together, inside the kernel's ranges where it names them."""
    batch = tokens if token_axis == "B" else 1
    blocks = max(2, -(-tokens // 16)) if token_axis == "T" else 3
    if "MB" in kernel.ranges:
        blocks = max(blocks, kernel.ranges["MB"].low)
    values = {"B": batch, "B1": batch + 1, "MB": blocks, "P": POSITIONS, token_axis: tokens}
    values["PAGES"] = max(values["B"] * blocks, -(-tokens // 16)) + 1
    values["P"] = max(POSITIONS, tokens, blocks * 16)
    return {name: values[name] for name, axis in definition.axes.items() if axis.value is None}


def _compare(
    implementation: Implementation, definition: Definition, contract: SlotContract, inputs: dict[str, Any]
) -> str:
    weights = {name: value for name, value in inputs.items() if name in contract.weights}
    bound = implementation.bind(weights)
    expected = exact_reference(definition, inputs)
    given = [inputs[name].clone() if isinstance(inputs[name], torch.Tensor) else inputs[name] for name in bound.names]
    written = dict(zip(bound.names, given, strict=True))
    fresh = iter(bound.call(*given))
    for name, want in zip(definition.outputs, expected, strict=True):
        got: Tensor = written[contract.aliases[name]] if name in contract.aliases else next(fresh)
        if got.shape != want.shape or not torch.isfinite(got).all():
            return f"{name} has shape {tuple(got.shape)} or is not finite, expected {tuple(want.shape)}"
        error = float((got.double() - want).abs().max() / want.abs().max().clamp(min=1e-30))
        if error > RELATIVE_ERROR:
            return f"{name} is off by {error:.1e} of its largest value"
    return ""


def exact_reference(definition: Definition, inputs: dict[str, Any]) -> tuple[Tensor, ...]:
    """Return the definition's outputs in float64; `inputs` by name, weights included."""
    return reference(
        definition,
        {
            name: value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value
            for name, value in inputs.items()
        },
    )


def reference(definition: Definition, inputs: dict[str, Any]) -> tuple[Tensor, ...]:
    """Return the definition's outputs in the dtype of its floating inputs; all outputs, aliased ones as copies."""
    return tuple(_compiled(definition.name, definition.reference)(**inputs))


@cache
def _compiled(name: str, source: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)  # our own definitions' source
    return namespace["run"]
