"""Gate and up projections with SwiGLU's gating; `q4_1_gate_up_silu` and `f32_gate_up_silu` bind one kind of weight.

x [T, H] float32, w [2F, HB] as stored (F gate rows, then F up rows) → y [T, F] = silu(x w_gate^T) * (x w_up^T), with
silu(g) = g / (1 + exp(-g)). Source: the MLP of Llama (Touvron et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw
from kernelwright.kernels.ops.weights import WeightKind
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(x, w):
    gate, up = F.linear(x, {decode}(w, x.dtype)).chunk(2, dim=-1)
    return (F.silu(gate) * up,)
"""
INCUMBENT = """
def prepare(w):
    return ({decode}(w, torch.float32).contiguous(),)


def run(x, dense):
    gate, up = F.linear(x, dense).chunk(2, dim=-1)
    return (F.silu(gate).mul_(up),)
"""


def definition(kind: WeightKind, *, f: int, h: int) -> Definition:
    """Return the definition for F = `f` gated units over H = `h` inputs."""
    return Definition(
        name=name_of(f"{kind.name}_gate_up_silu", f=f, h=h),
        op_type=f"{kind.name}_gate_up_silu",
        axes=axes_of({"F": f, "H": h, "F2": 2 * f, "HB": kind.stored_columns(h)}, ("T",)),
        inputs=tensors(f"x[T,H] w[F2,HB]:{kind.dtype}"),
        outputs=tensors("y[T,F]"),
        reference=source_with(kind.decode, body=REFERENCE.format(decode=kind.decode.__name__)),
        tags=("gate_up_silu", kind.name),
        description=f"y = silu(x w_gate^T) * (x w_up^T) with {kind.name} weights",
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: w is a weight."""
    return SlotContract(definition=definition.name, weights=("w",), token_axis="T", reduction_axis="H")


def incumbent(kind: WeightKind, definition: Definition) -> Candidate:
    """Return one F.linear over both projections, dequantised once, then silu and product."""
    dense = PackedTensor(name="dense", shape=(const_of(definition, "F2"), const_of(definition, "H")), dtype="float32")
    source = source_with(kind.decode, body=INCUMBENT.format(decode=kind.decode.__name__))
    return python_incumbent(definition, source, (dense,))


def cost(kind: WeightKind, definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`; silu counts as 4."""
    f, h, t = const_of(definition, "F"), const_of(definition, "H"), axes["T"]
    return Cost(bytes=2 * f * kind.row_bytes(h) + 4 * t * (f + h), flops=4 * t * f * h + 5 * t * f)


def generate(
    kind: WeightKind, definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str,
    weights: bool = True,
) -> dict[str, torch.Tensor | float]:  # fmt: skip
    """Return x and w drawn from `distribution`."""
    h, f2 = const_of(definition, "H"), const_of(definition, "F2")
    inputs: dict[str, torch.Tensor | float] = {"x": draw((axes["T"], h), generator, distribution)}
    if weights:
        inputs["w"] = kind.draw(f2, h, generator, distribution)  # type: ignore[assignment]
    return inputs
