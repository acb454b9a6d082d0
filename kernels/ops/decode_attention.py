"""`decode_attention`: one query token per sequence over a paged cache, grouped query heads.

q [B, HQ, D], k_cache, v_cache [PAGES, 16, HKV, D] float32, block_table [B, MB], context_lens [B] int32 → o [B, HQ, D] =
softmax(q k^T / sqrt(D)) v over the first context_lens[b] tokens. Source: Vaswani et al. 2017, Ainslie et al. 2023; page
layout: docs/architecture.md.
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
def run(q, k_cache, v_cache, block_table, context_lens):
    batch, q_heads, dim = q.shape
    page, kv_heads = k_cache.shape[1:3]
    rows = []
    for b, length in enumerate(context_lens.tolist()):
        pages = block_table[b, : (length + page - 1) // page].long()
        k = k_cache[pages].reshape(-1, kv_heads, dim)[:length].repeat_interleave(q_heads // kv_heads, dim=1)
        v = v_cache[pages].reshape(-1, kv_heads, dim)[:length].repeat_interleave(q_heads // kv_heads, dim=1)
        scores = torch.einsum("hd,shd->hs", q[b], k) * dim**-0.5
        rows.append(torch.einsum("hs,shd->hd", scores.softmax(dim=-1), v))
    return (torch.stack(rows),)
"""
# The query heads of one cache head stand in the place of query positions, so that SDPA never repeats k and v.
INCUMBENT = """
def run(q, k_cache, v_cache, block_table, context_lens):
    batch, q_heads, dim = q.shape
    page, kv_heads = k_cache.shape[1:3]
    grouped = q.view(batch, kv_heads, q_heads // kv_heads, dim)
    lengths = context_lens.tolist()
    longest = max(lengths)
    pages = block_table[:, : (longest + page - 1) // page].reshape(-1)
    k = k_cache.index_select(0, pages).view(batch, -1, kv_heads, dim)[:, :longest].transpose(1, 2)
    v = v_cache.index_select(0, pages).view(batch, -1, kv_heads, dim)[:, :longest].transpose(1, 2)
    mask = None
    if min(lengths) < longest:
        mask = (torch.arange(longest) < context_lens.unsqueeze(1)).view(batch, 1, 1, longest)
    return (F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view(batch, q_heads, dim),)
"""


def definition(*, q: int, kv: int, d: int, p: int = PAGE) -> Definition:
    """Return the definition for `q` query heads, `kv` cache heads, head size `d` and pages of `p` tokens."""
    return Definition(
        name=name_of("decode_attention", q=q, kv=kv, d=d, p=p),
        op_type="decode_attention",
        axes=axes_of({"HQ": q, "HKV": kv, "D": d, "PAGE": p}, ("B", "MB", "PAGES")),
        inputs=tensors(
            "q[B,HQ,D] k_cache[PAGES,PAGE,HKV,D] v_cache[PAGES,PAGE,HKV,D]"
            " block_table[B,MB]:int32 context_lens[B]:int32"
        ),
        outputs=tensors("o[B,HQ,D]"),
        reference=source_with(body=REFERENCE),
        tags=("attention", "decode"),
        description="attention of one new token per sequence over its paged cache",
        constraints=("1 <= context_lens <= PAGE*MB",),
    )


def contract(definition: Definition) -> SlotContract:
    """Return the engine's promises: no weights, nothing in place."""
    return SlotContract(definition=definition.name, token_axis="B")


def incumbent(definition: Definition) -> Candidate:
    """Return SDPA over the gathered pages."""
    return python_incumbent(definition, source_with(body=INCUMBENT))


def cost(definition: Definition, axes: dict[str, int]) -> Cost:
    """Return bytes and flops at batch `axes["B"]`.

    The tokens in all contexts are `axes["CONTEXT"]` when given; else the least that B and MB allow: one sequence that
    reaches the last block, the others of one token.
    """
    heads, dim, b = const_of(definition, "HQ"), const_of(definition, "D"), axes["B"]
    tokens = axes.get("CONTEXT") or (axes["MB"] - 1) * PAGE + b
    cache = 2 * tokens * const_of(definition, "HKV") * dim
    return Cost(
        bytes=4 * (cache + 2 * b * heads * dim) + 4 * b * (axes["MB"] + 1), flops=tokens * heads * (4 * dim + 5)
    )


def generate(
    definition: Definition, axes: dict[str, int], generator: torch.Generator, distribution: str, weights: bool = True
) -> dict[str, torch.Tensor | float]:
    """Return q, caches with distinct random pages per sequence, and mixed context lengths; see paging.py."""
    contexts = draw_contexts(axes["B"], axes["MB"], generator)
    table = draw_block_table(contexts, axes["MB"], axes["PAGES"], generator)
    cache = definition.shape_of("k_cache", axes)
    return {
        "q": draw(definition.shape_of("q", axes), generator, distribution),
        "k_cache": draw_cache(contexts, table, cache, generator, distribution),
        "v_cache": draw_cache(contexts, table, cache, generator, distribution),
        "block_table": table,
        "context_lens": contexts,
    }
