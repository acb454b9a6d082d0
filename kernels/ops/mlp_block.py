"""The region add_rmsnorm → gate_up_silu → down projection, one call per layer; `q4_1_mlp_block` and others bind a kind.

x, residual [T, H], weight [H] float32, eps double, w_gate_up [2F, HB], w_down [H, FB] int8 (rows as stored) → y,
residual_out [T, H] float32: residual_out = residual + x, y = down(silu(gate(n)) * up(n)), n = RMS norm of residual_out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops import add_rmsnorm
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.weights import WeightKind
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(x, residual, weight, eps, w_gate_up, w_down):
    total = residual + x
    normed = total * torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps) * weight
    gate, up = F.linear(normed, {decode}(w_gate_up, x.dtype)).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, {decode}(w_down, x.dtype)), total
"""
INCUMBENT = """
def prepare(weight, w_gate_up, w_down):
    gate_up, down = ({decode}(w, torch.float32).contiguous() for w in (w_gate_up, w_down))
    return weight, gate_up, down


def run(x, residual, eps, weight, gate_up, down):
    total = residual + x
    gate, up = F.linear(F.rms_norm(total, weight.shape, weight, eps), gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate).mul_(up), down), total
"""


def definition(kind: WeightKind, *, f: int, h: int) -> Definition:
    """Return the definition for F = `f` gated units over H = `h`."""
    const = {"F": f, "H": h, "F2": 2 * f, "HB": kind.stored_columns(h), "FB": kind.stored_columns(f)}
    return Definition(
        name=name_of(f"{kind.name}_mlp_block", f=f, h=h),
        op_type=f"{kind.name}_mlp_block",
        axes=axes_of(const, ("T",)),
        inputs=tensors(f"x[T,H] residual[T,H] weight[H] eps w_gate_up[F2,HB]:{kind.dtype} w_down[H,FB]:{kind.dtype}"),
        outputs=tensors("y[T,H] residual_out[T,H]"),
        reference=source_with(kind.decode, body=REFERENCE.format(decode=kind.decode.__name__)),
        tags=("region", "mlp", kind.name),
        description="residual addition, RMS norm, gated MLP",
    )


def contract(kind: WeightKind, definition: Definition) -> SlotContract:
    """Return the engine's promises, and the definitions this region hides."""
    f, h = const_of(definition, "F"), const_of(definition, "H")
    return SlotContract(
        definition=definition.name,
        weights=("weight", "w_gate_up", "w_down"),
        token_axis="T",
        regions=(
            name_of("add_rmsnorm", h=h),
            name_of(f"{kind.name}_gate_up_silu", f=f, h=h),
            name_of(f"{kind.name}_linear", n=h, k=f),
        ),
    )


def incumbent(kind: WeightKind, definition: Definition) -> Candidate:
    """Return the three ops' incumbents in a row."""
    f, h = const_of(definition, "F"), const_of(definition, "H")
    packed = (
        PackedTensor(name="gains", shape=(h,), dtype="float32"),
        PackedTensor(name="gate_up", shape=(2 * f, h), dtype="float32"),
        PackedTensor(name="down", shape=(h, f), dtype="float32"),
    )
    source = source_with(kind.decode, body=INCUMBENT.format(decode=kind.decode.__name__))
    return python_incumbent(definition, source, packed)


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`; what passes between the ops is not counted."""
    f, h, t = const_of(definition, "F"), const_of(definition, "H"), axes["T"]
    weights = 2 * f * const_of(definition, "HB") + h * const_of(definition, "FB") + 4 * h
    return Cost(bytes=weights + 16 * t * h, flops=6 * t * f * h + 5 * t * (f + h))


def generate(
    kind: WeightKind, definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str,
    weights: bool = True,
) -> dict[str, torch.Tensor | float]:  # fmt: skip
    """Return activations as add_rmsnorm's, and weights of `kind`."""
    f, h = const_of(definition, "F"), const_of(definition, "H")
    inputs = add_rmsnorm.generate(definition, axes, generator, distribution)
    if weights:
        inputs["w_gate_up"] = kind.draw(2 * f, h, generator, distribution)  # type: ignore[assignment]
        inputs["w_down"] = kind.draw(h, f, generator, distribution)  # type: ignore[assignment]
    return inputs
