# kw: {"problem": "attention", "faster": false, "text": "the incumbent, statement by statement"}
import torch


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
