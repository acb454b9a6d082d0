"""Conditioning: how far results move when inputs, or what lies between the steps, move by roundings.

Random roundings after each operation are Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic", UCLA CSD-970002,
1997): where a reference loses what its first step rounds off, as a batch norm of nearly equal rows does, its inputs'
last bits do not show it, and the spread over such runs does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from kernelwright.sandbox.draw import Tensors

SHAKES, SHAKE_UNITS = 3, 16
STEP_UNITS = 4
"""Units in the last place of a float32 by which each step of the reference is moved at most: eight roundings."""
MOVES = frozenset(
    "clone cat stack index index_select gather constant_pad_nd where repeat zeros ones zeros_like"
    " ones_like empty empty_like new_empty new_zeros full scatter slice_scatter select_scatter index_put index_copy"
    " _to_copy arange masked_fill embedding".split()
)
"""Operations that compute nothing: their results are not rounded."""


class RandomRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, every floating result of an operation that computes is moved by up to STEP_UNITS of a float32.

    What works in place is left as it is: the spread is then smaller, and the judge stricter.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled under it, and what would skip takes three seconds to import

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or func._schema.is_mutable or name in MOVES:
            return result
        return tree_map(self._round, result)

    def _round(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            return value
        return move(value, STEP_UNITS * torch.finfo(torch.float32).eps, self._generator)


def move(value: torch.Tensor, by: float, generator: torch.Generator) -> torch.Tensor:
    """Return `value` with each element moved by up to `by` of itself."""
    moves = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return value * (1 + by * moves)


def shake(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """Return float64 inputs, each floating one moved by up to SHAKE_UNITS units in its last place."""
    shaken: Tensors = {}
    for name, value in tensors.items():
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            value = move(value.double(), SHAKE_UNITS * torch.finfo(value.dtype).eps, generator)
        shaken[name] = value
    return shaken


def find_wobble(
    run: Callable[[Tensors], Mapping[str, torch.Tensor]], exact: Mapping[str, torch.Tensor], tensors: Tensors
) -> dict[str, torch.Tensor]:
    """Return by how much each element of each output moved at most, over runs of the reference `run`.

    SHAKES runs on shaken inputs and as many with random roundings between the steps. `exact`: the outputs (float64).
    """
    generator = torch.Generator().manual_seed(0)
    wobble = {name: torch.zeros_like(value) for name, value in exact.items()}
    for number in range(2 * SHAKES):
        if number < SHAKES:
            found = run(shake(tensors, generator))
        else:
            with RandomRounding(generator):
                found = run(tensors)
        for name, value in found.items():
            if value.dtype.is_floating_point:
                wobble[name] = torch.maximum(wobble[name], (value - exact[name]).abs().nan_to_num(0.0, 0.0))
    return wobble
