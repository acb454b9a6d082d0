"""Tensors as a trace records them with an op, and the least work that one call of it must do."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_BYTES: tuple[tuple[str, float, str], ...] = (
    ("float8|fp8|e4m3|e5m2", 1, "fp8"), ("bfloat16", 2, "bf16"), ("half|float16", 2, "fp16"),
    ("complex<double>", 16, "fp64"), ("complex", 8, "fp32"), ("double|float64", 8, "fp64"),
    ("float4|fp4|e2m1", 0.5, "fp4"), ("float", 4, "fp32"), ("long|int64", 8, "int64"), ("short|int16", 2, "int16"),
    ("unsigned char|uint8|byte", 1, "uint8"),
    ("signed char|int8|char", 1, "int8"), ("int", 4, "int32"), ("bool", 1, "bool"),
)  # fmt: skip
_ELEMENT = tuple((re.compile(pattern), size, name) for pattern, size, name in _BYTES)


class Cost(NamedTuple):
    """The least that one call must do."""

    flops: float
    bytes: float
    number: str
    """Number format of the operations."""


class Tensor(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    """Format, e.g. `bf16`; '' unknown."""
    size: float
    """Bytes of one element."""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        return self.numel * self.size


MOST_ELEMENTS = 1 << 53
"""A shape of more is no tensor's."""


@lru_cache(maxsize=16384)
def parse_inputs(text: str) -> tuple[Tensor | None, ...]:
    """Return the inputs of an op from `[shapes, types]`; None for those that are no tensors; () where unreadable."""
    try:
        shapes, types = json.loads(text)
    except (ValueError, TypeError):
        return ()
    if not isinstance(shapes, list) or not isinstance(types, list):
        return ()
    if any(_is_nonsense(shape) for shape in shapes):
        return ()
    types = [*types, *[""] * (len(shapes) - len(types))]
    return tuple(_tensor(shape, kind) for shape, kind in zip(shapes, types, strict=False))


def _is_nonsense(shape: Any) -> bool:
    sizes = shape if isinstance(shape, list) and all(isinstance(n, int) for n in shape) else []
    return any(n < 0 for n in sizes) or math.prod(sizes) >= MOST_ELEMENTS


def _tensor(shape: Any, kind: Any) -> Tensor | None:
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        return None
    if not isinstance(kind, str) or (not shape and kind in ("", "Scalar", "ScalarList")):
        return None
    found = next(((name, size) for pattern, size, name in _ELEMENT if pattern.search(kind.lower())), None)
    return Tensor(tuple(shape), *(found or ("", 0.0)))


Tensors = Sequence[Tensor | None]
"""The inputs of a call in their order; None for those that are no tensors."""
Model = Callable[[Tensors], Cost | None]
"""Returns the least work of a call; None where its inputs are not what the op is known to take."""


def present(inputs: Tensors) -> list[Tensor]:
    """Return the tensors among `inputs`."""
    return [t for t in inputs if t is not None]


def move_all(given: Sequence[Tensor]) -> Cost:
    """Return the work of reading or writing each of `given` once: of an op that gets its outputs as arguments, too."""
    largest = max(given, key=lambda t: t.numel)
    return Cost(float(largest.numel), sum(t.bytes for t in given), largest.dtype)
