"""`q4_1_attention_block`: the region add_rmsnorm → qkv → rope and cache write → decode attention → output projection.

x, residual [B, H], weight [H] float32, eps double, w_qkv [QKV, HB] int8, cos, sin [P, D/2], positions, slot_mapping [B]
int64, k_cache, v_cache [PAGES, 16, HKV, D], block_table [B, MB], context_lens [B] int32, w_o [H, OB] int8 → y,
residual_out [B, H]; caches in place. Decode only: one new token per sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import Q4_1_BYTES, decode_q4_1, row_bytes, source_with
from kernelwright.kernels.candidate import Candidate, PackedTensor
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops import decode_attention, rope_cache
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw, draw_norm_weight, draw_q4_1, rope_tables
from kernelwright.kernels.ops.paging import PAGE, draw_block_table, draw_cache, draw_contexts
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
{rope_cache}

{decode_attention}


def run(
    x, residual, weight, eps, w_qkv, cos, sin, positions, slot_mapping, k_cache, v_cache, block_table, context_lens, w_o
):
    total = residual + x
    normed = total * torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps) * weight
    qkv = F.linear(normed, decode_q4_1(w_qkv, x.dtype))
    q, k_out, v_out = rope_cache(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache)
    (o,) = decode_attention(q, k_out, v_out, block_table, context_lens)
    return F.linear(o.flatten(1), decode_q4_1(w_o, x.dtype)), total, k_out, v_out
"""
INCUMBENT = """
{rope_cache}

{decode_attention}


def prepare(weight, w_qkv, cos, sin, w_o):
    qkv, o = (decode_q4_1(w, torch.float32).contiguous() for w in (w_qkv, w_o))
    return weight, qkv, cos, sin, o


def run(
    x, residual, eps, positions, slot_mapping, k_cache, v_cache, block_table, context_lens, weight, qkv, cos, sin, o
):
    total = residual + x
    rows = F.linear(F.rms_norm(total, weight.shape, weight, eps), qkv)
    (q,) = rope_cache(rows, cos, sin, positions, slot_mapping, k_cache, v_cache)
    (attended,) = decode_attention(q, k_cache, v_cache, block_table, context_lens)
    return F.linear(attended.flatten(1), o), total
"""


def _renamed(source: str, name: str) -> str:
    return source.strip().replace("def run(", f"def {name}(", 1)


def definition(*, h: int, q: int, kv: int, d: int, p: int = PAGE) -> Definition:
    """Return the definition for width `h`, `q` query heads, `kv` cache heads, head size `d`, pages of `p` tokens."""
    const = {"H": h, "HQ": q, "HKV": kv, "D": d, "D2": d // 2, "PAGE": p, "QKV": (q + 2 * kv) * d}
    const |= {"HB": row_bytes(h, Q4_1_BYTES), "OB": row_bytes(q * d, Q4_1_BYTES)}
    reference = REFERENCE.format(
        rope_cache=_renamed(rope_cache.REFERENCE, "rope_cache"),
        decode_attention=_renamed(decode_attention.REFERENCE, "decode_attention"),
    )
    return Definition(
        name=name_of("q4_1_attention_block", h=h, q=q, kv=kv, d=d, p=p),
        op_type="q4_1_attention_block",
        axes=axes_of(const, ("B", "P", "MB", "PAGES")),
        inputs=tensors(
            "x[B,H] residual[B,H] weight[H] eps w_qkv[QKV,HB]:int8 cos[P,D2] sin[P,D2] positions[B]:int64"
            " slot_mapping[B]:int64 k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
            " block_table[B,MB]:int32 context_lens[B]:int32 w_o[H,OB]:int8"
        ),
        outputs=tensors("y[B,H] residual_out[B,H] k_cache_out[PAGES,PAGE,HKV,D] v_cache_out[PAGES,PAGE,HKV,D]"),
        reference=source_with(decode_q4_1, body=reference),
        tags=("region", "attention", "decode", "q4_1"),
        description="residual addition, RMS norm, attention of one new token per sequence, output projection",
        constraints=("1 <= context_lens <= PAGE*MB", "slot_mapping[b] is the slot of token context_lens[b]-1"),
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises, and the definitions this region hides."""
    h, q, kv, d, p = (const_of(definition, axis) for axis in ("H", "HQ", "HKV", "D", "PAGE"))
    return SlotContract(
        definition=definition.name,
        weights=("weight", "w_qkv", "cos", "sin", "w_o"),
        aliases={"k_cache_out": "k_cache", "v_cache_out": "v_cache"},
        token_axis="B",
        regions=(
            name_of("add_rmsnorm", h=h),
            name_of("q4_1_linear", n=(q + 2 * kv) * d, k=h),
            name_of("rope_cache", q=q, kv=kv, d=d, p=p),
            name_of("decode_attention", q=q, kv=kv, d=d, p=p),
            name_of("q4_1_linear", n=h, k=q * d),
        ),
    )


def incumbent(definition: Definition) -> Candidate:
    """Return the five ops' incumbents in a row.

    `packed` holds what `prepare` makes; cos and sin pass through it as they are, their length is the model's own.
    """
    h, q, d, qkv = (const_of(definition, axis) for axis in ("H", "HQ", "D", "QKV"))
    shapes = {"gains": (h,), "qkv": (qkv, h), "cos": (), "sin": (), "o": (h, q * d)}
    packed = tuple(PackedTensor(name=name, shape=shape, dtype="float32") for name, shape in shapes.items())
    source = INCUMBENT.format(
        rope_cache=_renamed(rope_cache.INCUMBENT, "rope_cache"),
        decode_attention=_renamed(decode_attention.INCUMBENT, "decode_attention"),
    )
    return python_incumbent(definition, source_with(decode_q4_1, body=source), packed)


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at batch `axes["B"]`: the weights, the cache (see decode_attention) and x, residual, y."""
    h, b, qkv = const_of(definition, "H"), axes["B"], const_of(definition, "QKV")
    o = const_of(definition, "HQ") * const_of(definition, "D")
    weights = qkv * const_of(definition, "HB") + h * const_of(definition, "OB") + 4 * h
    attention = decode_attention.cost(definition, axes)
    new = 8 * b * const_of(definition, "HKV") * const_of(definition, "D")
    return Cost(
        bytes=weights + 16 * b * h + attention.bytes - 8 * b * o + new + 4 * b * const_of(definition, "D"),
        flops=2 * b * h * (qkv + o) + attention.flops + 5 * b * h,
    )


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return one new token per sequence, whose slot is the last of its context. P must reach the longest context."""
    if axes["P"] < axes["MB"] * PAGE:
        raise ValueError(f"P={axes['P']} positions do not reach MB*{PAGE}={axes['MB'] * PAGE} tokens")
    contexts = draw_contexts(axes["B"], axes["MB"], generator)
    table = draw_block_table(contexts, axes["MB"], axes["PAGES"], generator)
    cache, shape = definition.shape_of("k_cache", axes), definition.shape_of("x", axes)
    last = contexts.long() - 1
    cos, sin = rope_tables(axes["P"], const_of(definition, "D2"))
    inputs: dict[str, torch.Tensor | float] = {
        "x": draw(shape, generator, distribution),
        "residual": draw(shape, generator, distribution),
        "weight": draw_norm_weight(shape[1], generator),
        "eps": 1e-5,
        "cos": cos,
        "sin": sin,
        "positions": last,
        "slot_mapping": table.gather(1, (last // PAGE).unsqueeze(1)).long().squeeze(1) * PAGE + last % PAGE,
        "k_cache": draw_cache(contexts, table, cache, generator, distribution),
        "v_cache": draw_cache(contexts, table, cache, generator, distribution),
        "block_table": table,
        "context_lens": contexts,
    }
    if weights:
        heads = const_of(definition, "HQ") * const_of(definition, "D")
        inputs["w_qkv"] = draw_q4_1(const_of(definition, "QKV"), shape[1], generator, distribution)
        inputs["w_o"] = draw_q4_1(shape[1], heads, generator, distribution)
    return {name: inputs[name] for name in definition.inputs if name in inputs}
