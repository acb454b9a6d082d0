"""Linear ops y = x w^T; the modules `q4_1_linear`, `q8_0_linear` and `f32_linear` bind one kind of weight.

x [T, K] float32, w [N, KB] as stored → y [T, N] float32. Source: torch.nn.functional.linear.
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
    return (F.linear(x, {decode}(w, x.dtype)),)
"""
INCUMBENT = """
def prepare(w):
    return ({decode}(w, torch.float32).contiguous(),)


def run(x, dense):
    return (F.linear(x, dense),)
"""


def definition(kind: WeightKind, *, n: int, k: int) -> Definition:
    """Return the definition for N = `n` outputs and K = `k` inputs."""
    return Definition(
        name=name_of(f"{kind.name}_linear", n=n, k=k),
        op_type=f"{kind.name}_linear",
        axes=axes_of({"N": n, "K": k, "KB": kind.stored_columns(k)}, ("T",)),
        inputs=tensors(f"x[T,K] w[N,KB]:{kind.dtype}"),
        outputs=tensors("y[T,N]"),
        reference=source_with(kind.decode, body=REFERENCE.format(decode=kind.decode.__name__)),
        tags=("linear", kind.name),
        description=f"y = x w^T with {kind.name} weights",
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: w is a weight, y is linear in x."""
    return SlotContract(definition=definition.name, weights=("w",), token_axis="T", linear=True, reduction_axis="K")


def incumbent(kind: WeightKind, definition: Definition) -> Candidate:
    """Return F.linear over weights dequantised once."""
    dense = PackedTensor(name="dense", shape=(const_of(definition, "N"), const_of(definition, "K")), dtype="float32")
    source = source_with(kind.decode, body=INCUMBENT.format(decode=kind.decode.__name__))
    return python_incumbent(definition, source, (dense,))


def cost(kind: WeightKind, definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]`."""
    n, k, t = const_of(definition, "N"), const_of(definition, "K"), axes["T"]
    return Cost(bytes=n * kind.row_bytes(k) + 4 * t * (n + k), flops=2 * t * n * k)


def generate(
    kind: WeightKind, definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str,
    weights: bool = True,
) -> dict[str, torch.Tensor | float]:  # fmt: skip
    """Return x and w drawn from `distribution`."""
    n, k = const_of(definition, "N"), const_of(definition, "K")
    inputs: dict[str, torch.Tensor | float] = {"x": draw((axes["T"], k), generator, distribution)}
    if weights:
        inputs["w"] = kind.draw(n, k, generator, distribution)  # type: ignore[assignment]
    return inputs
