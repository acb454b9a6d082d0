"""`sliding_prefill_attention`: `prefill_attention` in which each query sees its own and the W - 1 tokens before only.

Inputs and output as prefill_attention's: q [T, HQ, D], k_cache, v_cache [PAGES, 16, HKV, D] float32, block_table
[B, MB], context_lens [B], query_start [B+1] int32 → o [T, HQ, D]. A query at position t sees positions
max(0, t - W + 1)..t. W is a constant of the definition. Source: see sliding_decode_attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition
from kernelwright.kernels.ops import prefill_attention
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.paging import PAGE
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
WINDOW = {window}


def run(q, k_cache, v_cache, block_table, context_lens, query_start):
    q_heads, dim = q.shape[1:]
    page, kv_heads = k_cache.shape[1:3]
    starts = query_start.tolist()
    rows = []
    for b, length in enumerate(context_lens.tolist()):
        new = q[starts[b] : starts[b + 1]]
        pages = block_table[b, : (length + page - 1) // page].long()
        k = k_cache[pages].reshape(-1, kv_heads, dim)[:length].repeat_interleave(q_heads // kv_heads, dim=1)
        v = v_cache[pages].reshape(-1, kv_heads, dim)[:length].repeat_interleave(q_heads // kv_heads, dim=1)
        position, key = torch.arange(length - new.shape[0], length).unsqueeze(1), torch.arange(length)
        hidden = (key > position) | (key <= position - WINDOW)
        scores = torch.einsum("thd,shd->hts", new, k) * dim**-0.5
        rows.append(torch.einsum("hts,shd->thd", scores.masked_fill(hidden, float("-inf")).softmax(dim=-1), v))
    return (torch.cat(rows),)
"""
# Queries go in strips, each over the keys its windows reach: the work grows with T * W, not with T * T.
INCUMBENT = """
WINDOW = {window}
STRIP = {strip}


def run(q, k_cache, v_cache, block_table, context_lens, query_start):
    q_heads, dim = q.shape[1:]
    page, kv_heads = k_cache.shape[1:3]
    starts = query_start.tolist()
    o = torch.empty_like(q)
    for b, length in enumerate(context_lens.tolist()):
        before = length - (starts[b + 1] - starts[b])
        low = max(0, before - WINDOW + 1) // page
        pages = block_table[b, low : (length + page - 1) // page]
        k = k_cache.index_select(0, pages).view(-1, kv_heads, dim).transpose(0, 1).unsqueeze(0)
        v = v_cache.index_select(0, pages).view(-1, kv_heads, dim).transpose(0, 1).unsqueeze(0)
        for first in range(before, length, STRIP):
            end = min(first + STRIP, length)
            reach = max(0, first - WINDOW + 1)
            keys = slice(reach - low * page, end - low * page)
            rows = slice(starts[b] + first - before, starts[b] + end - before)
            position, key = torch.arange(first, end).unsqueeze(1), torch.arange(reach, end)
            mask = (key <= position) & (key > position - WINDOW)
            new = q[rows].transpose(0, 1).unsqueeze(0)
            out = F.scaled_dot_product_attention(new, k[:, :, keys], v[:, :, keys], attn_mask=mask, enable_gqa=True)
            o[rows] = out[0].transpose(0, 1)
    return (o,)
"""
LEAST_STRIP = 256


def definition(*, q: int, kv: int, d: int, w: int, p: int = PAGE) -> Definition:
    """Return the definition for `q` query heads, `kv` cache heads, head size `d`, window `w`, pages of `p` tokens."""
    return Definition(
        name=name_of("sliding_prefill_attention", q=q, kv=kv, d=d, w=w, p=p),
        op_type="sliding_prefill_attention",
        axes=axes_of({"HQ": q, "HKV": kv, "D": d, "W": w, "PAGE": p}, ("T", "B", "B1", "MB", "PAGES")),
        inputs=tensors(
            "q[T,HQ,D] k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
            " block_table[B,MB]:int32 context_lens[B]:int32 query_start[B1]:int32"
        ),
        outputs=tensors("o[T,HQ,D]"),
        reference=source_with(body=REFERENCE.format(window=w)),
        tags=("attention", "prefill", "sliding"),
        description="causal attention of the new tokens of each sequence over the last W tokens before each",
        constraints=("B1 == B + 1", "1 <= query_start[b+1] - query_start[b] <= context_lens[b] <= PAGE*MB"),
    )


contract = prefill_attention.contract


def incumbent(definition: Definition) -> Candidate:
    """Return SDPA per sequence and strip of queries over the gathered pages its windows reach."""
    window = const_of(definition, "W")
    source = INCUMBENT.format(window=window, strip=max(window, LEAST_STRIP))
    return python_incumbent(definition, source_with(body=source))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]` new tokens, as if no context was cached before (the least there is)."""
    whole, window = prefill_attention.cost(definition, axes), const_of(definition, "W")
    batch = axes.get("B", 1)
    each = axes["T"] // batch
    hidden = max(0, each - window)
    unseen = batch * hidden * (hidden + 1) // 2
    heads, dim = const_of(definition, "HQ"), const_of(definition, "D")
    return Cost(bytes=whole.bytes, flops=whole.flops - unseen * heads * (4 * dim + 5))


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return prefill_attention's inputs; contexts reach up to 16 * MB tokens, beyond the window where that is less."""
    return prefill_attention.generate(definition, axes, generator, distribution, weights)
