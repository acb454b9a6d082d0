"""Gate and up projections with GeGLU's gating; `q4_1_gate_up_gelu` and `f32_gate_up_gelu` bind one kind of weight.

x [T, H] float32, w [2F, HB] as stored (F gate rows, then F up rows) → y [T, F] = gelu(x w_gate^T) * (x w_up^T), with
gelu(g) = g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))), the tanh form. Source: the MLP of Gemma; Shazeer 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.ops import gate_up_silu
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.weights import WeightKind
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(x, w):
    gate, up = F.linear(x, {decode}(w, x.dtype)).chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") * up,)
"""
INCUMBENT = """
def prepare(w):
    return ({decode}(w, torch.float32).contiguous(),)


def run(x, dense):
    gate, up = F.linear(x, dense).chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh").mul_(up),)
"""


def definition(kind: WeightKind, *, f: int, h: int) -> Definition:
    """Return the definition for F = `f` gated units over H = `h` inputs."""
    return Definition(
        name=name_of(f"{kind.name}_gate_up_gelu", f=f, h=h),
        op_type=f"{kind.name}_gate_up_gelu",
        axes=axes_of({"F": f, "H": h, "F2": 2 * f, "HB": kind.stored_columns(h)}, ("T",)),
        inputs=tensors(f"x[T,H] w[F2,HB]:{kind.dtype}"),
        outputs=tensors("y[T,F]"),
        reference=source_with(kind.decode, body=REFERENCE.format(decode=kind.decode.__name__)),
        tags=("gate_up_gelu", kind.name),
        description=f"y = gelu(x w_gate^T) * (x w_up^T) with {kind.name} weights, gelu in its tanh form",
    )


contract = gate_up_silu.contract


def incumbent(kind: WeightKind, definition: Definition) -> Candidate:
    """Return one F.linear over both projections, dequantised once, then gelu and product."""
    dense = PackedTensor(name="dense", shape=(const_of(definition, "F2"), const_of(definition, "H")), dtype="float32")
    source = source_with(kind.decode, body=INCUMBENT.format(decode=kind.decode.__name__))
    return python_incumbent(definition, source, (dense,))


def cost(kind: WeightKind, definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`; gelu counts as 8, twice as many as silu."""
    silu = gate_up_silu.cost(kind, definition, axes)
    return Cost(bytes=silu.bytes, flops=silu.flops + 4 * axes["T"] * const_of(definition, "F"))


def generate(
    kind: WeightKind, definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str,
    weights: bool = True,
) -> dict[str, torch.Tensor | float]:  # fmt: skip
    """Return x and w drawn from `distribution`."""
    return gate_up_silu.generate(kind, definition, axes, generator, distribution, weights)
