"""Ops whose outputs hardly depend on their inputs, or look like them: what problems must not be made of."""

from __future__ import annotations

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import AxisRange
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.writing import axes_of, python_incumbent, tensors
from kernelwright.kernels.problem import Problem

BODIES = {
    "row_mean": ("x[T,C]", "y[T]", "return (x.mean(-1),)"),
    "softmax": ("x[T,C]", "y[T,C]", "return (x.softmax(-1),)"),
    "layer_norm": ("x[T,C]", "y[T,C]", "return (F.layer_norm(x, x.shape[-1:]),)"),
    "unused": ("x[T,C] z[T,C]", "y[T,C]", "return (x * 2,)"),
    "infinite": ("x[T,C]", "y[T,C]", "return ((100 * x.abs()).exp() * 1e38,)"),
    "constant": ("x[T,C]", "y[T,C]", "return (x * 0 + 3,)"),
}


def pose_weak(name: str, columns: int, tokens: int = 4) -> Problem:
    given, made, body = BODIES[name]
    names = ", ".join(tensors(given))
    source = source_with(body=f"def run({names}):\n    {body}\n")
    definition = Definition(
        name=name, op_type=name, axes=axes_of({"C": columns}, ("T",)), inputs=tensors(given), outputs=tensors(made),
        reference=source,
    )  # fmt: skip
    return Problem(
        target=None, definition=definition, contract=SlotContract(definition=name, token_axis="T", reduction_axis="C"),
        incumbent=python_incumbent(definition, source), workloads=(), ranges={"T": AxisRange(low=1, high=8)},
        timed_axes={"T": tokens}, num_weight_sets=1,
    )  # fmt: skip
