"""Null kernels: kernels that do not do the work. A problem that lets one of them pass is not worth solving.

Each works on one call and takes what it may from the incumbent's run and from the truth; `make_nulls` names all of
them. Sources of the kinds: KernelBench's constant outputs, copies that pass for a norm, dropped parameters, truncated
sums, undeclared precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.kernels.problem import Problem
from kernelwright.sandbox.draw import Tensors

if TYPE_CHECKING:
    import torch

Results = dict[str, "torch.Tensor"]
CUT = 100
"""One part in so many of the reduction is left out."""
IDLE = frozenset(
    ("zeros", "ones", "its mean", "the mean of each row", "random numbers of its moments", "permuted rows")
)
"""Null kernels that compute nothing; copies of an input are idle, too."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: `inputs` all inputs with weights, `truth` the fp64 outputs, `honest` the incumbent's outputs."""

    problem: Problem
    inputs: Tensors
    truth: Results
    honest: Results
    run: Callable[[Tensors], Results]
    """Runs the incumbent on other inputs."""
    generator: torch.Generator


def make_nulls(call: Call) -> Iterator[tuple[str, Callable[[], Results]]]:
    """Yield (name, function that returns the null kernel's outputs); those that make no sense here are left out."""
    for output, honest in call.honest.items():
        for name, value in _in_place_of(call, output, honest):
            yield f"{name} as {output}", lambda o=output, v=value: {**call.honest, o: v()}  # type: ignore[misc]
    for name in call.inputs:
        yield f"{name} dropped", lambda n=name: call.run({**call.inputs, n: _dropped(call.inputs[n])})  # type: ignore[misc]
    shortened = _shorten(call)
    if shortened is not None:
        yield "the first 99 % of the sum", lambda: call.run(shortened)
    yield "bfloat16 inputs", lambda: call.run({n: _through_bf16(v) for n, v in call.inputs.items()})
    policy = call.problem.precision
    if not policy.allow_tf32:
        yield "TF32 inputs", lambda: call.run({n: _through_tf32(v) for n, v in call.inputs.items()})
    if not policy.allow_int8_activations:
        yield "int8 activations", lambda: call.run(_int8_activations(call))


def _in_place_of(call: Call, output: str, honest: torch.Tensor) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Yield what may stand in place of one output."""
    import torch

    exact = call.truth[output].double()
    yield "zeros", lambda: torch.zeros_like(honest)
    yield "ones", lambda: torch.ones_like(honest)
    for name, value in call.inputs.items():
        if isinstance(value, torch.Tensor) and value.numel() == honest.numel() and value.dtype == honest.dtype:
            yield f"a copy of {name}", lambda v=value: v.reshape(honest.shape).clone()  # type: ignore[misc]
    if honest.dim() and honest.shape[0] > 1:
        yield "permuted rows", lambda: honest.roll(1, dims=0)
    if not honest.dtype.is_floating_point:
        return
    if honest.numel() == 1:  # its mean is the answer
        return
    yield "its mean", lambda: exact.mean().expand(honest.shape).to(honest.dtype)
    if honest.dim() > 1 and honest.shape[-1] > 1:
        yield "the mean of each row", lambda: exact.mean(-1, keepdim=True).expand(honest.shape).to(honest.dtype)
    yield "random numbers of its moments", lambda: _alike(exact, honest, call.generator)


def _alike(exact: torch.Tensor, honest: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    import torch

    noise = torch.randn(honest.shape, generator=generator, dtype=torch.float64)
    return (noise * exact.std(correction=0) + exact.mean()).to(honest.dtype)


def _dropped(value: torch.Tensor | float) -> torch.Tensor | float:
    import torch

    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0


def _shorten(call: Call) -> Tensors | None:
    """Return inputs whose last hundredth of the reduction is gone; None where the op has no such axis."""
    import torch

    definition, contract = call.problem.definition, call.problem.contract
    changed: Tensors = {}
    for name, value in call.inputs.items():
        axes = definition.inputs[name].shape or ()
        if name in contract.weights or not isinstance(value, torch.Tensor):
            continue
        if contract.reduction_axis in axes:
            axis = axes.index(str(contract.reduction_axis))
            short = value.clone()
            count = max(1, value.shape[axis] // CUT)
            short.narrow(axis, value.shape[axis] - count, count).zero_()
            changed[name] = short
        elif name == "context_lens" and int(value.max()) > 1:  # attention sums over the tokens of a context
            changed[name] = (value - (value // CUT).clamp(min=1)).clamp(min=1).to(value.dtype)
    return {**call.inputs, **changed} if changed else None


def _through_bf16(value: torch.Tensor | float) -> torch.Tensor | float:
    import torch

    if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
        return value.bfloat16().to(value.dtype)
    return value


def _through_tf32(value: torch.Tensor | float) -> torch.Tensor | float:
    import torch

    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return round_to_tf32(value)
    return value


def round_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Return float32 `x` rounded to 10 explicit bits of mantissa, ties away from zero."""
    import torch

    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def round_to_int8(x: torch.Tensor) -> torch.Tensor:
    """Return `x` [..., C] quantised to int8 with one scale per row, as the values the int8 numbers stand for."""
    scale = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
    return (x / scale).round() * scale


def _int8_activations(call: Call) -> Tensors:
    import torch

    return {
        name: round_to_int8(value)
        if isinstance(value, torch.Tensor)
        and value.dtype.is_floating_point
        and name not in call.problem.contract.weights
        else value
        for name, value in call.inputs.items()
    }
