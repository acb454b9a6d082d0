"""`sliding_decode_attention`: `decode_attention` in which each query sees the last W tokens of its context only.

q [B, HQ, D], k_cache, v_cache [PAGES, 16, HKV, D] float32, block_table [B, MB], context_lens [B] int32 → o [B, HQ, D] =
softmax(q k^T / sqrt(D)) v over tokens max(0, context_lens[b] - W)..context_lens[b]-1, the new one among them. W is a
constant of the definition. Source: Beltagy et al. 2020, the local layers of Gemma 3; pages as in decode_attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.ops import decode_attention
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.paging import PAGE
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
WINDOW = {window}


def run(q, k_cache, v_cache, block_table, context_lens):
    batch, q_heads, dim = q.shape
    page, kv_heads = k_cache.shape[1:3]
    rows = []
    for b, length in enumerate(context_lens.tolist()):
        pages = block_table[b, : (length + page - 1) // page].long()
        seen = slice(max(0, length - WINDOW), length)
        k = k_cache[pages].reshape(-1, kv_heads, dim)[seen].repeat_interleave(q_heads // kv_heads, dim=1)
        v = v_cache[pages].reshape(-1, kv_heads, dim)[seen].repeat_interleave(q_heads // kv_heads, dim=1)
        scores = torch.einsum("hd,shd->hs", q[b], k) * dim**-0.5
        rows.append(torch.einsum("hs,shd->hd", scores.softmax(dim=-1), v))
    return (torch.stack(rows),)
"""
# Only pages that a window touches are gathered; SDPA never repeats k and v, as in decode_attention.
INCUMBENT = """
WINDOW = {window}


def run(q, k_cache, v_cache, block_table, context_lens):
    batch, q_heads, dim = q.shape
    page, kv_heads = k_cache.shape[1:3]
    grouped = q.view(batch, kv_heads, q_heads // kv_heads, dim)
    lengths = context_lens.tolist()
    first = [max(0, length - WINDOW) // page for length in lengths]
    width = max((length + page - 1) // page - low for length, low in zip(lengths, first))
    low = torch.tensor(first).unsqueeze(1)
    # a shorter sequence's row is filled up with its last column; the mask hides it
    columns = (low + torch.arange(width)).clamp_(max=block_table.shape[1] - 1)
    pages = block_table.gather(1, columns).reshape(-1)
    k = k_cache.index_select(0, pages).view(batch, -1, kv_heads, dim).transpose(1, 2)
    v = v_cache.index_select(0, pages).view(batch, -1, kv_heads, dim).transpose(1, 2)
    if batch == 1:
        start, end = max(0, lengths[0] - WINDOW) - first[0] * page, lengths[0] - first[0] * page
        k, v, mask = k[:, :, start:end], v[:, :, start:end], None
    else:
        place, end = low * page + torch.arange(width * page), context_lens.unsqueeze(1)
        mask = ((place < end) & (place >= end - WINDOW)).view(batch, 1, 1, -1)
    return (F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view(batch, q_heads, dim),)
"""


def definition(*, q: int, kv: int, d: int, w: int, p: int = PAGE) -> Definition:
    """Return the definition for `q` query heads, `kv` cache heads, head size `d`, window `w`, pages of `p` tokens."""
    return Definition(
        name=name_of("sliding_decode_attention", q=q, kv=kv, d=d, w=w, p=p),
        op_type="sliding_decode_attention",
        axes=axes_of({"HQ": q, "HKV": kv, "D": d, "W": w, "PAGE": p}, ("B", "MB", "PAGES")),
        inputs=tensors(
            "q[B,HQ,D] k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
            " block_table[B,MB]:int32 context_lens[B]:int32"
        ),
        outputs=tensors("o[B,HQ,D]"),
        reference=source_with(body=REFERENCE.format(window=w)),
        tags=("attention", "decode", "sliding"),
        description="attention of one new token per sequence over the last W tokens of its paged cache",
        constraints=("1 <= context_lens <= PAGE*MB",),
    )


contract = decode_attention.contract


def incumbent(definition: Definition) -> Candidate:
    """Return SDPA over the gathered pages of each window."""
    source = INCUMBENT.format(window=const_of(definition, "W"))
    return python_incumbent(definition, source_with(body=source))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at batch `axes["B"]`: those of decode_attention over the tokens in the windows.

    The tokens in all contexts are `axes["CONTEXT"]` when given, of which at most B windows are seen; else the least
    that B and MB allow.
    """
    b, window = axes["B"], const_of(definition, "W")
    seen = min(axes["CONTEXT"], b * window) if axes.get("CONTEXT") else min((axes["MB"] - 1) * PAGE + 1, window) + b - 1
    return decode_attention.cost(definition, {**axes, "CONTEXT": seen})


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return decode_attention's inputs; contexts reach up to 16 * MB tokens, beyond the window where that is less."""
    return decode_attention.generate(definition, axes, generator, distribution, weights)
