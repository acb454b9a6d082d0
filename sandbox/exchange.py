"""Exchange: give one arm the inputs of a call and take its results, with poison, guard zones and two reads."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.mailbox import GUARD, Place
from kernelwright.sandbox.supervisor import Arm, Call

if TYPE_CHECKING:
    import torch

_NAN_BASE = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8 << 48}
_NAN_BITS = {"float16": 9, "bfloat16": 6, "float32": 22, "float64": 51}
_SAME_SIZE = {2: "int16", 4: "int32", 8: "int64"}

Trouble = str
"""'' or one of: late, guard, unwritten, inputs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Results of one call, by the definition's output names, as they were when the bell rang."""

    results: dict[str, torch.Tensor]
    trouble: Trouble


class Exchange:
    """One arm with a set of planned calls. `aliases` maps output name → input written in place."""

    def __init__(self, arm: Arm, calls: Sequence[Call], aliases: Mapping[str, str], controls: Controls) -> None:
        self.arm = arm
        self.calls = tuple(calls)
        self._output_of = {source: output for output, source in aliases.items()}
        self._controls = controls
        self._guard = os.urandom(GUARD)
        self._poison: dict[int, int] = {}
        self._waited = False
        for call in self.calls:
            for place in call.written().values():
                self._fence(place)

    def load(self, index: int, tensors: Mapping[str, torch.Tensor | float], poison: int) -> None:
        """Write the inputs of call `index` and poison its outputs with a pattern made from `poison`."""
        call = self.calls[index]
        for name, place in call.inputs.items():
            self.arm.inputs.write(place, tensors[name])  # type: ignore[arg-type]
        for name, place in call.aliased.items():
            self.arm.outputs.write(place, tensors[name])  # type: ignore[arg-type]
        self._poison[index] = poison
        self._waited = False
        for place in call.outputs.values():
            fill_poison(self.arm.outputs.view(place), poison if self._controls.poison else None)

    def collect(self, index: int, tensors: Mapping[str, torch.Tensor | float], delay_s: float = 0.0) -> Answer:
        """Return the results of call `index`; with a delay they are read twice, before and after it."""
        call = self.calls[index]
        places = call.written()
        if not self._controls.read_twice:
            self._wait_once()
        first = {name: self.arm.outputs.read(place) for name, place in places.items()}
        trouble = ""
        if delay_s > 0 and self._controls.read_twice:
            time.sleep(delay_s)
            second = {name: self.arm.outputs.read(place) for name, place in places.items()}
            if not all(same_bits(first[n], second[n]) for n in first):
                trouble = "late"
        trouble = trouble or self._find_trouble(index, first, tensors)
        return Answer({self._output_of.get(n, n): t for n, t in first.items()}, trouble)

    def _wait_once(self) -> None:
        if not self._waited:
            time.sleep(0.05)
            self._waited = True

    def _find_trouble(
        self, index: int, results: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor | float]
    ) -> Trouble:
        call = self.calls[index]
        if self._controls.guard_zones and any(not self._is_fenced(place) for place in call.written().values()):
            return "guard"
        if self._controls.poison and any(holds_poison(results[n], self._poison[index]) for n in call.outputs):
            return "unwritten"
        if self._controls.protect_inputs and not self.arm.sealed:
            if any(not same_bits(self.arm.inputs.view(p), tensors[n]) for n, p in call.inputs.items()):  # type: ignore[arg-type]
                return "inputs"
        return ""

    def _fence(self, place: Place) -> None:
        memory, end = self.arm.outputs.memory, place.offset + place.num_bytes
        memory[place.offset - GUARD : place.offset] = self._guard
        memory[end : end + GUARD] = self._guard

    def _is_fenced(self, place: Place) -> bool:
        memory, end = self.arm.outputs.memory, place.offset + place.num_bytes
        return memory[place.offset - GUARD : place.offset] == self._guard and memory[end : end + GUARD] == self._guard


def fill_poison(tensor: torch.Tensor, poison: int | None) -> None:
    """Fill `tensor` with the NaN (or bytes, for integers) that stands for `poison`; None fills zeros."""
    import torch

    if poison is None:
        tensor.zero_()
        return
    size = tensor.element_size()
    if size == 1:
        tensor.view(torch.int8).fill_(poison % 251 - 125)
        return
    tensor.view(getattr(torch, _SAME_SIZE[size])).fill_(
        _pattern(str(tensor.dtype).removeprefix("torch."), size, poison)
    )


def holds_poison(tensor: torch.Tensor, poison: int) -> bool:
    """Return whether a float tensor still holds the pattern anywhere; integers cannot tell and say no."""
    import torch

    if not tensor.dtype.is_floating_point:
        return False
    size = tensor.element_size()
    pattern = _pattern(str(tensor.dtype).removeprefix("torch."), size, poison)
    return bool((tensor.view(getattr(torch, _SAME_SIZE[size])) == pattern).any())


def _pattern(dtype: str, size: int, poison: int) -> int:
    if dtype in _NAN_BASE:
        return int(_NAN_BASE[dtype] | (1 + poison % ((1 << _NAN_BITS[dtype]) - 1)))
    return poison % (1 << (8 * size - 1))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors of one dtype are equal bit for bit (NaNs too)."""
    import torch

    if a.dtype.is_floating_point and a.element_size() > 1:
        integer = getattr(torch, _SAME_SIZE[a.element_size()])
        return torch.equal(a.contiguous().view(integer), b.contiguous().view(integer))
    return torch.equal(a, b)
