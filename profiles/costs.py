"""The least work of one call of an op, from the shapes and types of its inputs: operations and bytes that must move.

Formulas: a matrix product of [m, k] and [k, n] is 2·m·n·k operations; attention over p pairs of query and key is
4·heads·head size·p (Dao et al. 2022, without the softmax); everything else moves its inputs and its output once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kernelwright.profiles.cost import Cost, Model, Tensor, Tensors, move_all, parse_inputs, present
from kernelwright.profiles.costs_serving import SERVING
from kernelwright.profiles.phases import Step


@lru_cache(maxsize=16384)
def least_cost(op: str, inputs: str, step: Step | None = None) -> Cost | None:
    """Return the least work of a call of `op` with `inputs`; None where there is no model for it.

    `step` gives the lengths of the sequences for an attention op whose inputs do not tell them.
    """
    tensors = parse_inputs(inputs)
    given = present(tensors)
    if not given or any(not t.size for t in given if t.numel):
        return None
    name = op.rpartition("::")[2].lower().removesuffix("_")
    if name.startswith("paged_attention"):
        return _paged_attention(given, step)
    if "attention" in name or name in _HEADS_LAST:
        return _attention(tensors, step, name)
    model = _written if name == "rms_norm" and not op.startswith("aten::") else _MODELS.get(name)
    if model is not None:
        return model(tensors)
    if name in _ONCE:
        return _once(given)
    return move_all(given) if name.startswith(("triton_poi_", "triton_red_", "triton_per_")) else None


def _product(a: Tensor, b: Tensor, m: int, n: int, k: int, batch: int, extra: float, out: float) -> Cost:
    wider = max((a, b), key=lambda t: t.size)
    number = wider.dtype if a.dtype != "int8" else "int8"
    return Cost(2.0 * batch * m * n * k, a.bytes + b.bytes + extra + batch * m * n * out, number)


def _mm(t: Tensors, first: int = 0, extra: int | None = None) -> Cost | None:
    a, b = _pair(t, first)
    if a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        return None
    batch = math.prod(a.shape[:-2])
    if math.prod(b.shape[:-2]) not in (1, batch):
        return None
    added = t[extra] if extra is not None and extra < len(t) else None
    return _product(a, b, a.shape[-2], b.shape[-1], a.shape[-1], batch, added.bytes if added else 0.0, a.size)


def _mv(t: Tensors) -> Cost | None:
    a, b = _pair(t, 0)
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 1 or a.shape[1] != b.shape[0]:
        return None
    return _product(a, b, a.shape[0], 1, a.shape[1], 1, 0.0, a.size)


def _matmul(t: Tensors) -> Cost | None:
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


def _linear(t: Tensors) -> Cost | None:
    """Input [.., k] and weight [n, k], as `F.linear` has them."""
    a, b = _pair(t, 0)
    if a is None or b is None or not a.shape or len(b.shape) != 2 or a.shape[-1] != b.shape[1]:
        return None
    bias = t[2] if len(t) > 2 else None
    rows = math.prod(a.shape[:-1])
    return _product(a, b, rows, b.shape[0], b.shape[1], 1, bias.bytes if bias else 0.0, a.size)


def _pair(t: Tensors, first: int) -> tuple[Tensor | None, Tensor | None]:
    return (t[first], t[first + 1]) if len(t) > first + 1 else (None, None)


def _scaled(t: Tensors) -> Cost | None:
    """`cutlass_scaled_mm(out, a, b, scales…)`: the first tensor is written."""
    out, a, b = (*t, None, None, None)[:3]
    if out is None or a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        return None
    return _product(a, b, a.shape[0], b.shape[1], a.shape[1], 1, 0.0, out.size)


def _embedding(t: Tensors) -> Cost | None:
    table, ids = _pair(t, 0)
    if table is None or ids is None or len(table.shape) != 2:
        return None
    return Cost(0.0, ids.bytes + 2.0 * ids.numel * table.shape[1] * table.size, table.dtype)


_HEADS_LAST = frozenset({
    "fwd", "varlen_fwd", "fwd_kvcache", "mha_fwd", "mha_varlen_fwd", "_flash_attention_forward",
    "_efficient_attention_forward",
})  # fmt: skip
"""Ops whose tensors of four axes are [batch, tokens, heads, size]; those of the others [batch, heads, tokens, size]."""


def _attention(t: Tensors, step: Step | None, name: str) -> Cost | None:
    """Query, key and value as the first tensors of three or four axes with one head size.

    Pages of a cache are [pages, tokens, heads, size], of a CPU's [pages, heads, tokens, size].
    """
    found = [x for x in t if x is not None and len(x.shape) in (3, 4) and x.size]
    if len(found) < 3:
        return None
    q, k, v = found[:3]
    if q.shape[-1] != k.shape[-1]:
        return None
    tokens, head = (1, 2) if name in _HEADS_LAST else (2, 1)
    if (
        len(q.shape) == 4
        and len(k.shape) == 4
        and q.shape[0] == k.shape[0]
        and not q.shape[head] % max(k.shape[head], 1)
    ):
        if name == "fwd_kvcache":  # of a cache's tokens only those of the sequence count, and nobody says how many
            return None
        batch, size = q.shape[0], q.shape[3]
        heads, rows, keys = q.shape[head], q.shape[tokens], k.shape[tokens]
        pairs = rows * keys - rows * (rows - 1) // 2 if rows <= keys else rows * keys
        flops = 4.0 * batch * heads * size * pairs
        return Cost(flops, 2 * q.bytes + k.bytes + v.bytes, q.dtype)
    return _over_cache(q, k.shape[1 if name.startswith("cpu_attention") else -2], k.size, step)


def _paged_attention(given: Sequence[Tensor], step: Step | None) -> Cost | None:
    """`paged_attention_v1(out, query, keys, values [pages, heads, size, tokens], …)`; v2 has sums before `query`."""
    at = next((i for i, x in enumerate(given) if len(x.shape) == 5), 0)
    if at < 2 or len(given) < at + 2 or len(given[at + 1].shape) != 4:
        return None
    return _over_cache(given[at - 1], given[at + 1].shape[1], given[at + 1].size, step)


def _over_cache(q: Tensor, kv_heads: int, size: float, step: Step | None) -> Cost | None:
    """Return the work of queries [tokens, heads, head size] over cached keys and values of the lengths `step` tells."""
    lengths = [x for x in ((step.prefill, step.decode) if step else ()) if x is not None]
    if len(q.shape) != 3 or not lengths:
        return None
    heads, head_size = q.shape[1:]
    causal = sum(x.products - (x.squares - x.queries) / 2 for x in lengths)
    cached = sum(x.keys for x in lengths) * 2.0 * kv_heads * head_size * size
    return Cost(4.0 * heads * head_size * causal, 2 * q.bytes + cached, q.dtype)


def _once(given: Sequence[Tensor]) -> Cost:
    """Each input is read once, and an output as large as the largest of them (or as they broadcast) is written."""
    largest = max(given, key=lambda t: t.numel)
    broadcast = _broadcast([t.shape for t in given])
    count = math.prod(broadcast) if broadcast is not None else largest.numel
    return Cost(float(count), sum(t.bytes for t in given) + count * largest.size, largest.dtype)


def _written(t: Tensors) -> Cost:
    """The first input is what is written (`copy_(self, src)`, `silu_and_mul(out, input)`)."""
    return move_all(present(t))


def _reduced(t: Tensors) -> Cost:
    """Inputs are read; what is written is smaller, or of a type that the trace does not tell."""
    given = present(t)
    return Cost(float(given[0].numel), sum(x.bytes for x in given), given[0].dtype)


def _compared(t: Tensors) -> Cost:
    work = _reduced(t)
    return work._replace(bytes=work.bytes + work.flops)


def _filled(t: Tensors) -> Cost:
    first = present(t)[0]
    return Cost(0.0, first.bytes, first.dtype)


def _added_norm(t: Tensors) -> Cost | None:
    """`fused_add_rms_norm(input, residual, weight)`: both are read and written."""
    given = present(t)
    if len(given) < 3:
        return None
    return Cost(5.0 * given[0].numel, 2 * (given[0].bytes + given[1].bytes) + given[2].bytes, given[0].dtype)


def _rotary(t: Tensors) -> Cost | None:
    """`rotary_embedding(positions, query, key, …)`: query and key are read and written."""
    given = present(t)
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


_MODELS: Mapping[str, Model] = {
    "mm": _mm, "bmm": _mm, "addmm": lambda t: _mm(t, 1, 0), "baddbmm": lambda t: _mm(t, 1, 0), "mv": _mv,
    "matmul": _matmul, "linear": _linear, "_scaled_mm": _mm, "_int_mm": _mm, "cutlass_scaled_mm": _scaled,
    "embedding": _embedding, "rocm_unquantized_gemm": _linear, "wvsplitk": _linear,
    "_addmm_activation": lambda t: _mm(t, 1, 0),
    "mkldnn_linear_pointwise": _linear, "_linear_pointwise": _linear, "_weight_int8pack_mm": _linear
} | SERVING | dict.fromkeys(("fp8_scaled_mm", "int8_scaled_mm", "fp8_blockwise_scaled_mm"), _mm) | dict.fromkeys(
    ("gemm_a8w8", "gemm_a8w8_ck", "gemm_a8w8_blockscale", "gemm_a8w8_bpreshuffle"), _linear
) | dict.fromkeys(("copy", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"), _written) | dict.fromkeys(
    ("sum", "mean", "max", "min", "argmax", "argmin", "topk", "amax", "amin", "all", "any"), _reduced
) | dict.fromkeys(("eq", "ne", "lt", "gt", "le", "ge"), _compared) | {
    "_to_copy": _reduced, "fill": _filled, "zero": _filled, "exponential": _filled, "rotary_embedding": _rotary,
    "fused_add_rms_norm": _added_norm, "fused_add_rmsnorm": _added_norm, "gemma_fused_add_rmsnorm": _added_norm,
}  # fmt: skip
_ONCE = frozenset({
    "add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt", "pow", "silu", "gelu", "relu", "sigmoid", "tanh",
    "clone", "contiguous", "softmax", "_softmax", "log_softmax", "_log_softmax", "layer_norm", "native_layer_norm",
    "rms_norm", "_fused_rms_norm", "native_batch_norm", "cos", "sin", "masked_fill", "clamp", "cumsum", "reciprocal",
    "abs", "tril", "triu", "maximum", "minimum", "addcmul", "addcdiv", "lerp", "dropout", "native_dropout",
    "bitwise_and", "bitwise_or", "logical_and", "logical_or", "logical_not",
})  # fmt: skip
