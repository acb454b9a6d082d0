# kw: {"problem": "attention", "faster": true, "text": "one masked softmax for all sequences"}
import torch


def run(q, k_cache, v_cache, block_table, context_lens):
    batch, q_heads, dim = q.shape
    page, kv_heads = k_cache.shape[1:3]
    longest = int(context_lens.max())
    pages = block_table[:, : (longest + page - 1) // page].reshape(-1)
    k = k_cache.index_select(0, pages).view(batch, -1, kv_heads, dim)[:, :longest].transpose(1, 2)
    v = v_cache.index_select(0, pages).view(batch, -1, kv_heads, dim)[:, :longest].transpose(1, 2)
    past = (torch.arange(longest) >= context_lens.unsqueeze(1)).view(batch, 1, 1, longest)
    scores = q.view(batch, kv_heads, q_heads // kv_heads, dim) @ k.transpose(2, 3) * dim**-0.5
    weights = scores.masked_fill_(past, float("-inf")).softmax(dim=-1)
    return ((weights @ v).view(batch, q_heads, dim),)
