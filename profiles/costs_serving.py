"""Least work of the ops that servers bring with them: quantised products, experts, caches, norms, samplers.

Argument orders: `csrc/torch_bindings.cpp` and `csrc/moe/torch_bindings.cpp` of vLLM, `common_extension.cc` of
sgl-kernel, `fused_moe.py` of both, aiter's `ops`, ATen's `native_functions.yaml`.
"""

from __future__ import annotations

import math

from kernelwright.profiles.cost import Cost, Model, Tensor, Tensors, move_all, present

_FLOATING = frozenset({"fp8", "bf16", "fp16", "fp32"})
_LEAST_BITS, _MOST_BITS = 1.5, 8.5
"""Of a quantised weight; what lies outside was misread."""


def _first(t: Tensors, count: int) -> list[Tensor] | None:
    """Return the first `count` tensors of a call; None where it has fewer."""
    given = present(t)[:count]
    return given if len(given) == count else None


def _packed(t: Tensors) -> Cost | None:
    """Activations [m, k], a weight packed into integers, its scales [groups, n], whatever stands between them."""
    given = present(t)
    weight = next((x for x in given[1:] if x.dtype in ("int32", "uint8", "int8") and len(x.shape) == 2), None)
    if weight is None or len(given[0].shape) != 2 or given[0].dtype not in _FLOATING:
        return None
    scales = next(
        (x for x in given[given.index(weight) + 1 :] if x.dtype in _FLOATING and len(x.shape) == 2 and x.numel), None
    )
    return _with_weight(given[0], weight, scales.shape[1] if scales else 0, scales)


def _with_weight(a: Tensor, weight: Tensor, n: int, scales: Tensor | None) -> Cost | None:
    m, k = a.shape
    if not n * k or not _LEAST_BITS <= 8 * weight.bytes / (n * k) <= _MOST_BITS:
        return None
    moved = a.bytes + weight.bytes + (scales.bytes if scales else 0.0) + m * n * a.size
    return Cost(2.0 * m * n * k, moved, a.dtype)


def _int4pack(t: Tensors) -> Cost | None:
    """`_weight_int4pack_mm(a [m, k], packed, group size, scales and zeros [groups, n, 2])`."""
    given = _first(t, 3)
    if given is None or len(given[0].shape) != 2 or len(given[2].shape) != 3:
        return None
    return _with_weight(given[0], given[1], given[2].shape[1], given[2])


def _ggml(t: Tensors) -> Cost | None:
    """`ggml_mul_mat_a8(w [n, bytes of a row], x [m, k], …)`: products of eight-bit integers."""
    given = _first(t, 2)
    if given is None or len(given[0].shape) != 2 or len(given[1].shape) != 2:
        return None
    work = _with_weight(given[1], given[0], given[0].shape[0], None)
    return work._replace(number="int8") if work else None


def _fp4(t: Tensors) -> Cost | None:
    """`cutlass_scaled_fp4_mm(out [m, n], a [m, k/2], b [n, k/2], scales of a and of b, …)`: two numbers a byte."""
    given = _first(t, 5)
    if given is None or any(len(x.shape) != 2 for x in given[:3]):
        return None
    out, a, b = given[:3]
    if a.shape[1] != b.shape[1] or out.shape != (a.shape[0], b.shape[0]):
        return None
    return Cost(4.0 * out.numel * a.shape[1], sum(x.bytes for x in given), "fp4")


def _onednn(t: Tensors) -> Cost | None:
    """`onednn_mm(out [m, n], a [m, k], …)`: the weight is behind a handle, taken to be of the type of `a`."""
    given = _first(t, 2)
    if given is None or any(len(x.shape) != 2 for x in given) or given[0].shape[0] != given[1].shape[0]:
        return None
    out, a = given
    n, k = out.shape[1], a.shape[1]
    return Cost(2.0 * out.shape[0] * n * k, out.bytes + a.bytes + n * k * a.size, a.dtype)


def _experts(t: Tensors) -> Cost | None:
    """`fused_experts(x [m, h], w1 [e, 2i, h], w2 [e, h, i], weights [m, top], ids [m, top], …)`; weights may be packed.

    Of the experts' weights it moves those that are asked for when tokens choose evenly, e·(1 - (1 - top/e)^m), what
    routers are trained to do: the trace does not say which were.
    """
    given = _first(t, 5)
    if given is None or [len(x.shape) for x in given] != [2, 3, 3, 2, 2] or given[3].shape != given[4].shape:
        return None
    x, up, down, _, ids = given
    (m, hidden), experts, top = x.shape, up.shape[0], ids.shape[1]
    if down.shape[:2] != (experts, hidden) or ids.shape[0] != m or not experts or not up.shape[2]:
        return None
    inner = down.shape[2] * hidden // up.shape[2]  # both are packed alike
    used = experts * (1.0 - (1.0 - min(top / experts, 1.0)) ** m)
    flops = 2.0 * m * top * hidden * (up.shape[1] + inner)
    number = up.dtype if up.dtype in _FLOATING or up.dtype == "fp4" else x.dtype
    return Cost(flops, 2.0 * x.bytes + used / experts * (up.bytes + down.bytes), number)


def _cached(t: Tensors) -> Cost | None:
    """`reshape_and_cache(key, value, key cache, value cache, slots)`: of the caches only the slots are written."""
    given = _first(t, 5)
    if given is None or not given[0].shape or not given[0].shape[0]:
        return None
    key, value, cache, _, slots = given
    share = min(slots.numel / key.shape[0], 1.0)
    written = (key.numel + value.numel) * cache.size
    return Cost(0.0, share * (key.bytes + value.bytes + written) + slots.bytes, key.dtype)


def _moved(t: Tensors) -> Cost | None:
    given = present(t)
    return move_all(given) if given else None


def _added(t: Tensors) -> Cost | None:
    """`fused_add_rms_norm_static_fp8_quant(out, input, residual, weight, scale)`: the residual is written, too."""
    given = _first(t, 4)
    if given is None:
        return None
    return Cost(5.0 * given[1].numel, sum(x.bytes for x in given) + given[2].bytes, given[1].dtype)


def _penalised(t: Tensors) -> Cost | None:
    """`apply_repetition_penalties_(logits, masks…)`: logits are read and written."""
    given = present(t)
    return Cost(2.0 * given[0].numel, sum(x.bytes for x in given) + given[0].bytes, given[0].dtype)


def _sampled(t: Tensors) -> Cost | None:
    """Reads probabilities or logits once; what is drawn is small."""
    largest = max(present(t), key=lambda x: x.numel)
    return Cost(float(largest.numel), largest.bytes, largest.dtype)


def _sorted(t: Tensors) -> Cost | None:
    """Values are read and written, and their places with them, as int64."""
    first = present(t)[0]
    return Cost(float(first.numel), 2 * first.bytes + 8.0 * first.numel, first.dtype)


def _taken(t: Tensors) -> Cost | None:
    """`index_select(x, dim, ids)`: the trace keeps no `dim`, so it is the axis whose rows are the smallest."""
    given = _first(t, 2)
    if given is None or not given[0].numel or not given[0].shape or len(given[1].shape) > 1:
        return None
    x, ids = given
    smallest = min(math.prod(x.shape) // n for n in x.shape)
    return Cost(0.0, ids.bytes + 2.0 * smallest * ids.numel * x.size, x.dtype)


def _gathered(t: Tensors) -> Cost | None:
    """`gather(x, dim, ids)`: as many values as there are ids."""
    given = _first(t, 2)
    if given is None:
        return None
    x, ids = given
    return Cost(0.0, ids.bytes + 2.0 * ids.numel * x.size, x.dtype)


_PACKED = (
    "awq_gemm", "gptq_gemm", "marlin_gemm", "gptq_marlin_gemm", "awq_marlin_gemm", "machete_mm", "fp8_marlin_gemm",
)  # fmt: skip
_EXPERTS = ("fused_experts", "inplace_fused_experts", "outplace_fused_experts", "fused_moe")
_CACHES = ("reshape_and_cache", "reshape_and_cache_flash", "cpu_attn_reshape_and_cache", "store_cache")
_OUTPUTS_GIVEN = (
    "rmsnorm", "gemma_rmsnorm", "add_rmsnorm", "rms_norm_static_fp8_quant", "rms_norm_dynamic_per_token_quant",
    "static_scaled_fp8_quant", "dynamic_scaled_fp8_quant", "dynamic_per_token_scaled_fp8_quant",
    "per_token_group_fp8_quant", "sgl_per_token_group_quant_fp8", "sgl_per_token_group_quant_8bit",
    "sgl_per_tensor_quant_fp8", "sgl_per_token_quant_fp8", "static_scaled_int8_quant", "dynamic_scaled_int8_quant",
    "scaled_fp4_quant", "silu_and_mul_quant", "mul_and_silu", "gelu_new", "gelu_fast", "gelu_quick",
    "swigluoai_and_mul", "moe_sum", "topk_softmax",
)  # fmt: skip
"""Elementwise ops and norms whose outputs are among their arguments."""
_SAMPLERS = (
    "multinomial", "greedy_argmax", "top_k_top_p_sampling_from_probs", "top_p_sampling_from_probs",
    "top_k_sampling_from_probs", "min_p_sampling_from_probs", "sampling_from_probs", "sampling_from_logits",
)  # fmt: skip
_BY_MODEL: tuple[tuple[tuple[str, ...], Model], ...] = (
    (_PACKED, _packed), (("ggml_mul_mat_a8", "ggml_mul_mat_vec_a8"), _ggml), (("_weight_int4pack_mm",), _int4pack),
    (("cutlass_scaled_fp4_mm",), _fp4), (("onednn_mm",), _onednn), (_EXPERTS, _experts), (_CACHES, _cached),
    (_OUTPUTS_GIVEN, _moved), (("fused_add_rms_norm_static_fp8_quant",), _added), (_SAMPLERS, _sampled),
    (("apply_repetition_penalties",), _penalised), (("sort",), _sorted), (("index_select",), _taken),
    (("gather",), _gathered),
)  # fmt: skip
SERVING: dict[str, Model] = {name: model for names, model in _BY_MODEL for name in names}
"""By the op's name without its library and without a `_` at the end."""
