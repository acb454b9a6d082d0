# kw: {"problem": "attention", "faster": true, "text": "one masked SDPA for all sequences"}
import torch
import torch.nn.functional as F


def run(q, k_cache, v_cache, block_table, context_lens):
    batch, q_heads, dim = q.shape
    page, kv_heads = k_cache.shape[1:3]
    longest = int(context_lens.max())
    pages = block_table[:, : (longest + page - 1) // page].reshape(-1)
    k = k_cache.index_select(0, pages).view(batch, -1, kv_heads, dim)[:, :longest].transpose(1, 2)
    v = v_cache.index_select(0, pages).view(batch, -1, kv_heads, dim)[:, :longest].transpose(1, 2)
    mask = (torch.arange(longest) < context_lens.unsqueeze(1)).view(batch, 1, 1, longest)
    grouped = q.view(batch, kv_heads, q_heads // kv_heads, dim)
    return (F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view(batch, q_heads, dim),)
