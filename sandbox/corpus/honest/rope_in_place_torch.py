# kw: {"problem": "cache", "faster": true, "text": "two index_copy_ instead of copies of the caches"}
import torch


def honest(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache):
    pages, page, kv_heads, dim = k_cache.shape
    heads = qkv.view(qkv.shape[0], -1, dim)
    rotary = heads.shape[1] - kv_heads
    q_heads = rotary - kv_heads
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    x1, x2 = heads[:, :rotary].chunk(2, dim=-1)
    rotated = torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), dim=-1)
    k_cache.view(pages * page, kv_heads, dim).index_copy_(0, slot_mapping, rotated[:, q_heads:])
    v_cache.view(pages * page, kv_heads, dim).index_copy_(0, slot_mapping, heads[:, rotary:])
    return (rotated[:, :q_heads].contiguous(),)


def run(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache):
    return honest(qkv, cos, sin, positions, slot_mapping, k_cache, v_cache)
