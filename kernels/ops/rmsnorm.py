"""`rmsnorm`: y = x / sqrt(mean(x^2) + eps) * weight, with no residual: the norm behind a block in Gemma 3.

x [T, H], weight [H] float32, eps double → y [T, H] float32. Source: Zhang and Sennrich 2019.
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
def run(x, weight, eps):
    return (x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight,)
"""
INCUMBENT = """
def run(x, weight, eps):
    return (F.rms_norm(x, weight.shape, weight, eps),)
"""


def definition(*, h: int) -> Definition:
    """Return the definition for rows of H = `h`."""
    return Definition(
        name=name_of("rmsnorm", h=h),
        op_type="rmsnorm",
        axes=axes_of({"H": h}, ("T",)),
        inputs=tensors("x[T,H] weight[H] eps"),
        outputs=tensors("y[T,H]"),
        reference=source_with(body=REFERENCE),
        tags=("norm",),
        description="RMS norm",
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: the gains are weights."""
    return SlotContract(definition=definition.name, weights=("weight",), token_axis="T", reduction_axis="H")


def incumbent(definition: Definition) -> Candidate:
    """Return torch's fused F.rms_norm."""
    return python_incumbent(definition, source_with(body=INCUMBENT))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`."""
    h, t = const_of(definition, "H"), axes["T"]
    return Cost(bytes=4 * h * (2 * t + 1), flops=4 * t * h)


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return x, weight and eps."""
    h = const_of(definition, "H")
    x = draw((axes["T"], h), generator, distribution)
    return {"x": x, "weight": draw_norm_weight(h, generator), "eps": 1e-5}
