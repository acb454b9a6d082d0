"""Linear ops with a bias, y = x w^T + b; the modules `q4_1_linear_bias`, … bind one kind of weight.

x [T, K] float32, w [N, KB] as stored, b [N] float32 → y [T, N] float32. Source: torch.nn.functional.linear; the query,
key and value projections of Qwen2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops import linear
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.weights import WeightKind
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
def run(x, w, b):
    return (F.linear(x, {decode}(w, x.dtype), b),)
"""
INCUMBENT = """
def prepare(w, b):
    return {decode}(w, torch.float32).contiguous(), b


def run(x, dense, bias):
    return (F.linear(x, dense, bias),)
"""


def definition(kind: WeightKind, *, n: int, k: int) -> Definition:
    """Return the definition for N = `n` outputs and K = `k` inputs."""
    return Definition(
        name=name_of(f"{kind.name}_linear_bias", n=n, k=k),
        op_type=f"{kind.name}_linear_bias",
        axes=axes_of({"N": n, "K": k, "KB": kind.stored_columns(k)}, ("T",)),
        inputs=tensors(f"x[T,K] w[N,KB]:{kind.dtype} b[N]"),
        outputs=tensors("y[T,N]"),
        reference=source_with(kind.decode, body=REFERENCE.format(decode=kind.decode.__name__)),
        tags=("linear", "bias", kind.name),
        description=f"y = x w^T + b with {kind.name} weights",
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: w and b are weights. y is affine in x, not linear."""
    return SlotContract(definition=definition.name, weights=("w", "b"), token_axis="T", reduction_axis="K")


def incumbent(kind: WeightKind, definition: Definition) -> Candidate:
    """Return F.linear over weights dequantised once."""
    n, k = const_of(definition, "N"), const_of(definition, "K")
    packed = (
        PackedTensor(name="dense", shape=(n, k), dtype="float32"),
        PackedTensor(name="bias", shape=(n,), dtype="float32"),
    )
    source = source_with(kind.decode, body=INCUMBENT.format(decode=kind.decode.__name__))
    return python_incumbent(definition, source, packed)


def cost(kind: WeightKind, definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`."""
    bare, n = linear.cost(kind, definition, axes), const_of(definition, "N")
    return Cost(bytes=bare.bytes + 4 * n, flops=bare.flops + axes["T"] * n)


def generate(
    kind: WeightKind, definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str,
    weights: bool = True,
) -> dict[str, torch.Tensor | float]:  # fmt: skip
    """Return x and w drawn from `distribution`, and a bias of the size that products of normal inputs have."""
    import torch

    inputs = linear.generate(kind, definition, axes, generator, distribution, weights)
    if weights:
        inputs["b"] = torch.randn((const_of(definition, "N"),), generator=generator)
    return inputs
