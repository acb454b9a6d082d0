"""The least work of one call of an op, from the shapes and types of its inputs: operations and bytes that must move.

Formulas: a matrix product of [m, k] and [k, n] is 2·m·n·k operations; attention over p pairs of query and key is
4·heads·head size·p (Dao et al. 2022, without the softmax); everything else moves its inputs and its output once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kernelwright.profiles.phases import Step

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


@lru_cache(maxsize=16384)
def parse_inputs(text: str) -> tuple[Tensor | None, ...]:
    """Return the inputs of an op from `[shapes, types]`; None for those that are no tensors; () where unreadable."""
    try:
        shapes, types = json.loads(text)
    except (ValueError, TypeError):
        return ()
    if not isinstance(shapes, list) or not isinstance(types, list):
        return ()
    types = [*types, *[""] * (len(shapes) - len(types))]
    return tuple(_tensor(shape, kind) for shape, kind in zip(shapes, types, strict=False))


def _tensor(shape: Any, kind: Any) -> Tensor | None:
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        return None
    if not isinstance(kind, str) or (not shape and kind in ("", "Scalar", "ScalarList")):
        return None
    found = next(((name, size) for pattern, size, name in _ELEMENT if pattern.search(kind.lower())), None)
    return Tensor(tuple(shape), *(found or ("", 0.0)))


@lru_cache(maxsize=16384)
def least_cost(op: str, inputs: str, step: Step | None = None) -> Cost | None:
    """Return the least work of a call of `op` with `inputs`; None where there is no model for it.

    `step` gives the lengths of the sequences for an attention op whose inputs do not tell them.
    """
    tensors = parse_inputs(inputs)
    given = [t for t in tensors if t is not None]
    if not given or any(not t.size for t in given if t.numel):
        return None
    name = op.rpartition("::")[2].lower().removesuffix("_")
    if "attention" in name or name in ("varlen_fwd", "fwd", "fwd_kvcache", "mha_fwd", "mha_varlen_fwd"):
        return _attention(tensors, step)
    model = _written if name == "rms_norm" and not op.startswith("aten::") else _MODELS.get(name)
    if model is not None:
        return model(tensors)
    if name in _ONCE:
        return _once(given)
    return _all_given(given) if name.startswith(("triton_poi_", "triton_red_", "triton_per_")) else None


def _product(a: Tensor, b: Tensor, m: int, n: int, k: int, batch: int, extra: float, out: float) -> Cost:
    wider = max((a, b), key=lambda t: t.size)
    number = wider.dtype if a.dtype != "int8" else "int8"
    return Cost(2.0 * batch * m * n * k, a.bytes + b.bytes + extra + batch * m * n * out, number)


def _mm(t: Sequence[Tensor | None], first: int = 0, extra: int | None = None) -> Cost | None:
    a, b = _pair(t, first)
    if a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        return None
    batch = math.prod(a.shape[:-2])
    if math.prod(b.shape[:-2]) not in (1, batch):
        return None
    added = t[extra] if extra is not None and extra < len(t) else None
    return _product(a, b, a.shape[-2], b.shape[-1], a.shape[-1], batch, added.bytes if added else 0.0, a.size)


def _mv(t: Sequence[Tensor | None]) -> Cost | None:
    a, b = _pair(t, 0)
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 1 or a.shape[1] != b.shape[0]:
        return None
    return _product(a, b, a.shape[0], 1, a.shape[1], 1, 0.0, a.size)


def _matmul(t: Sequence[Tensor | None]) -> Cost | None:
    a, b = _pair(t, 0)
    if a is None or b is None or not a.shape or not b.shape:
        return None
    if len(b.shape) == 1:
        b = Tensor((b.shape[0], 1), b.dtype, b.size)
    if len(a.shape) == 1:
        a = Tensor((1, a.shape[0]), a.dtype, a.size)
    if len(b.shape) == 2 and len(a.shape) > 2:
        a = Tensor((math.prod(a.shape[:-1]), a.shape[-1]), a.dtype, a.size)
    return _mm((a, b))


def _linear(t: Sequence[Tensor | None]) -> Cost | None:
    """Input [.., k] and weight [n, k], as `F.linear` has them."""
    a, b = _pair(t, 0)
    if a is None or b is None or not a.shape or len(b.shape) != 2 or a.shape[-1] != b.shape[1]:
        return None
    bias = t[2] if len(t) > 2 else None
    rows = math.prod(a.shape[:-1])
    return _product(a, b, rows, b.shape[0], b.shape[1], 1, bias.bytes if bias else 0.0, a.size)


def _pair(t: Sequence[Tensor | None], first: int) -> tuple[Tensor | None, Tensor | None]:
    return (t[first], t[first + 1]) if len(t) > first + 1 else (None, None)


def _scaled(t: Sequence[Tensor | None]) -> Cost | None:
    """`cutlass_scaled_mm(out, a, b, scales…)`: the first tensor is written."""
    out, a, b = (*t, None, None, None)[:3]
    if out is None or a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        return None
    return _product(a, b, a.shape[0], b.shape[1], a.shape[1], 1, 0.0, out.size)


def _embedding(t: Sequence[Tensor | None]) -> Cost | None:
    table, ids = _pair(t, 0)
    if table is None or ids is None or len(table.shape) != 2:
        return None
    return Cost(0.0, ids.bytes + 2.0 * ids.numel * table.shape[1] * table.size, table.dtype)


def _attention(t: Sequence[Tensor | None], step: Step | None) -> Cost | None:
    """Query, key and value as the first tensors of three or four axes with one head size."""
    found = [x for x in t if x is not None and len(x.shape) in (3, 4) and x.size]
    if len(found) < 3:
        return None
    q, k, v = found[:3]
    if q.shape[-1] != k.shape[-1]:
        return None
    if len(q.shape) == 4 and len(k.shape) == 4 and q.shape[0] == k.shape[0] and q.shape[1] % max(k.shape[1], 1) == 0:
        batch, heads, rows, size = q.shape
        keys = k.shape[2]
        pairs = rows * keys - rows * (rows - 1) // 2 if rows <= keys else rows * keys
        flops = 4.0 * batch * heads * size * pairs
        return Cost(flops, 2 * q.bytes + k.bytes + v.bytes, q.dtype)
    lengths = [x for x in ((step.prefill, step.decode) if step else ()) if x is not None]
    if len(q.shape) != 3 or not lengths:
        return None
    heads, size = q.shape[1:]
    causal = sum(x.products - (x.squares - x.queries) / 2 for x in lengths)
    kv_heads = k.shape[-2]
    cached = sum(x.keys for x in lengths) * 2.0 * kv_heads * size * k.size
    return Cost(4.0 * heads * size * causal, 2 * q.bytes + cached, q.dtype)


def _once(given: Sequence[Tensor]) -> Cost:
    """Each input is read once, and an output as large as the largest of them (or as they broadcast) is written."""
    largest = max(given, key=lambda t: t.numel)
    broadcast = _broadcast([t.shape for t in given])
    count = math.prod(broadcast) if broadcast is not None else largest.numel
    return Cost(float(count), sum(t.bytes for t in given) + count * largest.size, largest.dtype)


def _all_given(given: Sequence[Tensor]) -> Cost:
    """A kernel that Inductor made gets its outputs as arguments, too."""
    largest = max(given, key=lambda t: t.numel)
    return Cost(float(largest.numel), sum(t.bytes for t in given), largest.dtype)


def _given(t: Sequence[Tensor | None]) -> list[Tensor]:
    return [x for x in t if x is not None]


def _written(t: Sequence[Tensor | None]) -> Cost:
    """The first input is what is written (`copy_(self, src)`, `silu_and_mul(out, input)`)."""
    return _all_given(_given(t))


def _reduced(t: Sequence[Tensor | None]) -> Cost:
    """Inputs are read; what is written is smaller, or of a type that the trace does not tell."""
    given = _given(t)
    return Cost(float(given[0].numel), sum(x.bytes for x in given), given[0].dtype)


def _compared(t: Sequence[Tensor | None]) -> Cost:
    work = _reduced(t)
    return work._replace(bytes=work.bytes + work.flops)


def _filled(t: Sequence[Tensor | None]) -> Cost:
    first = _given(t)[0]
    return Cost(0.0, first.bytes, first.dtype)


def _added_norm(t: Sequence[Tensor | None]) -> Cost | None:
    """`fused_add_rms_norm(input, residual, weight)`: both are read and written."""
    given = _given(t)
    if len(given) < 3:
        return None
    return Cost(5.0 * given[0].numel, 2 * (given[0].bytes + given[1].bytes) + given[2].bytes, given[0].dtype)


def _rotary(t: Sequence[Tensor | None]) -> Cost | None:
    """`rotary_embedding(positions, query, key, …)`: query and key are read and written."""
    given = _given(t)
    if len(given) < 3:
        return None
    positions, q, k = given[:3]
    return Cost(3.0 * (q.numel + k.numel), positions.bytes + 2 * (q.bytes + k.bytes), q.dtype)


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    width = max(map(len, shapes))
    padded = [(1,) * (width - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        real = {n for n in sizes if n != 1}
        if len(real) > 1:
            return None
        result.append(real.pop() if real else 1)
    return tuple(result)


_MODELS: Mapping[str, Callable[[Sequence[Tensor | None]], Cost | None]] = {
    "mm": _mm, "bmm": _mm, "addmm": lambda t: _mm(t, 1, 0), "baddbmm": lambda t: _mm(t, 1, 0), "mv": _mv,
    "matmul": _matmul, "linear": _linear, "_scaled_mm": _mm, "_int_mm": _mm, "cutlass_scaled_mm": _scaled,
    "embedding": _embedding, "rocm_unquantized_gemm": _linear, "wvsplitk": _linear,
    "_addmm_activation": lambda t: _mm(t, 1, 0),
    "mkldnn_linear_pointwise": _linear, "_linear_pointwise": _linear, "onednn_mm": _mm
} | dict.fromkeys(("copy", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"), _written) | dict.fromkeys(
    ("sum", "mean", "max", "min", "argmax", "argmin", "topk", "amax", "amin", "all", "any"), _reduced
) | dict.fromkeys(("eq", "ne", "lt", "gt", "le", "ge"), _compared) | dict.fromkeys(("to", "_to_copy"), _reduced) | {
    "fill": _filled, "zero": _filled, "fused_add_rms_norm": _added_norm, "rotary_embedding": _rotary,
}  # fmt: skip
_ONCE = frozenset({
    "add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt", "pow", "silu", "gelu", "relu", "sigmoid", "tanh",
    "clone", "contiguous", "softmax", "_softmax", "log_softmax", "_log_softmax", "layer_norm", "native_layer_norm",
    "rms_norm", "_fused_rms_norm", "native_batch_norm", "cos", "sin", "masked_fill", "clamp", "cumsum", "reciprocal",
    "abs", "tril", "triu", "maximum", "minimum", "addcmul", "addcdiv", "lerp", "dropout", "native_dropout",
    "bitwise_and", "bitwise_or", "logical_and", "logical_or", "logical_not",
})  # fmt: skip
