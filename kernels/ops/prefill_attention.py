"""`prefill_attention`: causal attention of new tokens of several sequences over their paged caches.

q [T, HQ, D] float32: the new tokens of sequence b are rows query_start[b]..query_start[b+1]-1, the last ones of its
context_lens[b] tokens (earlier ones are cached already). k_cache, v_cache [PAGES, 16, HKV, D], block_table [B, MB],
context_lens [B], query_start [B+1] int32 → o [T, HQ, D]. The cache holds the new tokens too. Source: see
decode_attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.kernels.blocks import source_with
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.ops.cost import Cost
from kernelwright.kernels.ops.draws import draw
from kernelwright.kernels.ops.paging import PAGE, draw_block_table, draw_cache, draw_contexts
from kernelwright.kernels.ops.writing import axes_of, const_of, name_of, python_incumbent, tensors

if TYPE_CHECKING:
    import torch

REFERENCE = """
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
        position = torch.arange(length - new.shape[0], length)
        hidden = torch.arange(length) > position.unsqueeze(1)
        scores = torch.einsum("thd,shd->hts", new, k) * dim**-0.5
        rows.append(torch.einsum("hts,shd->thd", scores.masked_fill(hidden, float("-inf")).softmax(dim=-1), v))
    return (torch.cat(rows),)
"""
INCUMBENT = """
def run(q, k_cache, v_cache, block_table, context_lens, query_start):
    q_heads, dim = q.shape[1:]
    page, kv_heads = k_cache.shape[1:3]
    starts = query_start.tolist()
    o = torch.empty_like(q)
    for b, length in enumerate(context_lens.tolist()):
        count = starts[b + 1] - starts[b]
        pages = block_table[b, : (length + page - 1) // page]
        k = k_cache.index_select(0, pages).view(-1, kv_heads, dim)[:length].transpose(0, 1).unsqueeze(0)
        v = v_cache.index_select(0, pages).view(-1, kv_heads, dim)[:length].transpose(0, 1).unsqueeze(0)
        new = q[starts[b] : starts[b + 1]].transpose(0, 1).unsqueeze(0)
        mask = None
        if 1 < count < length:
            mask = torch.arange(length) <= torch.arange(length - count, length).unsqueeze(1)
        out = F.scaled_dot_product_attention(new, k, v, attn_mask=mask, is_causal=count == length, enable_gqa=True)
        o[starts[b] : starts[b + 1]] = out[0].transpose(0, 1)
    return (o,)
"""


def definition(*, q: int, kv: int, d: int, p: int = PAGE) -> Definition:
    """Return the definition for `q` query heads, `kv` cache heads, head size `d` and pages of `p` tokens."""
    return Definition(
        name=name_of("prefill_attention", q=q, kv=kv, d=d, p=p),
        op_type="prefill_attention",
        axes=axes_of({"HQ": q, "HKV": kv, "D": d, "PAGE": p}, ("T", "B", "B1", "MB", "PAGES")),
        inputs=tensors(
            "q[T,HQ,D] k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
            " block_table[B,MB]:int32 context_lens[B]:int32 query_start[B1]:int32"
        ),
        outputs=tensors("o[T,HQ,D]"),
        reference=source_with(body=REFERENCE),
        tags=("attention", "prefill"),
        description="causal attention of the new tokens of each sequence over its paged cache",
        constraints=("B1 == B + 1", "1 <= query_start[b+1] - query_start[b] <= context_lens[b] <= PAGE*MB"),
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: no weights, nothing in place."""
    return SlotContract(definition=definition.name, token_axis="T")


def incumbent(definition: Definition) -> Candidate:
    """Return SDPA per sequence over its gathered pages."""
    return python_incumbent(definition, source_with(body=INCUMBENT))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at T = `axes["T"]` new tokens, as if no context was cached before (the least there is)."""
    heads, dim, t = const_of(definition, "HQ"), const_of(definition, "D"), axes["T"]
    batch = axes.get("B", 1)
    pairs = batch * (t // batch) * (t // batch + 1) // 2
    cache = 2 * t * const_of(definition, "HKV") * dim
    return Cost(bytes=4 * (cache + 2 * t * heads * dim), flops=pairs * heads * (4 * dim + 5))


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return q split at random over the sequences, and caches with distinct pages that also hold earlier tokens.

    Raises ValueError when T is less than B or the blocks cannot hold the tokens.
    """
    import torch

    batch, t = axes["B"], axes["T"]
    if not batch <= t <= batch * axes["MB"] * PAGE:
        raise ValueError(f"T={t} new tokens do not fit B={batch} sequences of at most {axes['MB'] * PAGE}")
    counts = _split(t, batch, axes["MB"] * PAGE, generator)
    contexts = torch.maximum(draw_contexts(batch, axes["MB"], generator), counts)
    fresh = torch.rand((batch,), generator=generator) < 0.4
    contexts = torch.where(fresh, counts, contexts).to(torch.int32)
    table = draw_block_table(contexts, axes["MB"], axes["PAGES"], generator)
    cache = definition.shape_of("k_cache", axes)
    return {
        "q": draw(definition.shape_of("q", axes), generator, distribution),
        "k_cache": draw_cache(contexts, table, cache, generator, distribution),
        "v_cache": draw_cache(contexts, table, cache, generator, distribution),
        "block_table": table,
        "context_lens": contexts,
        "query_start": torch.cat((torch.zeros(1), counts.cumsum(0))).to(torch.int32),
    }


def _split(total: int, parts: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """Return `parts` random int32 counts in 1..`most` that sum to `total`."""
    import torch

    counts = torch.ones(parts, dtype=torch.int32)
    left = total - parts
    while left:
        part = int(torch.randint(0, parts, (), generator=generator))
        share = min(int(torch.randint(1, left + 1, (), generator=generator)), most - int(counts[part]))
        counts[part] += share
        left -= share
    return counts
