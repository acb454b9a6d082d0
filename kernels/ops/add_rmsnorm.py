"""`add_rmsnorm`: residual_out = residual + x; y = residual_out / sqrt(mean(residual_out^2) + eps) * weight.

x, residual [T, H], weight [H] float32, eps double → y, residual_out [T, H] float32. Source: Zhang and Sennrich 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw, draw_norm_weight
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(x, residual, weight, eps):
    total = residual + x
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
    return total * scale * weight, total
"""
INCUMBENT = """
def run(x, residual, weight, eps):
    total = residual + x
    return F.rms_norm(total, weight.shape, weight, eps), total
"""


def definition(*, h: int) -> Definition:
    """Return the definition for rows of H = `h`."""
    return Definition(
        name=name_of("add_rmsnorm", h=h),
        op_type="add_rmsnorm",
        axes=axes_of({"H": h}, ("T",)),
        inputs=tensors("x[T,H] residual[T,H] weight[H] eps"),
        outputs=tensors("y[T,H] residual_out[T,H]"),
        reference=source_with(body=REFERENCE),
        tags=("norm",),
        description="residual addition, then RMS norm",
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: the gains are weights."""
    return SlotContract(definition=definition.name, weights=("weight",), token_axis="T", reduction_axis="H")


def incumbent(definition: Definition) -> Candidate:
    """Return torch's addition and fused F.rms_norm."""
    return python_incumbent(definition, source_with(body=INCUMBENT))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`."""
    h, t = const_of(definition, "H"), axes["T"]
    return Cost(bytes=4 * h * (4 * t + 1), flops=5 * t * h)


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return x, residual, weight and eps; x is zero in a tenth of the draws, as in layer 0."""
    import torch

    shape = (axes["T"], const_of(definition, "H"))
    x = draw(shape, generator, distribution)
    if float(torch.rand((), generator=generator)) < 0.1:
        x = torch.zeros(shape)
    return {
        "x": x,
        "residual": draw(shape, generator, distribution),
        "weight": draw_norm_weight(shape[1], generator),
        "eps": 1e-5,
    }
