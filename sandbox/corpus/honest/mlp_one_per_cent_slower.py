# kw: {"problem": "mlp", "faster": false, "text": "the incumbent, and about one per cent of its work again"}
import torch
import torch.nn.functional as F


def decode_q4_1(w, dtype):
    import torch

    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).to(dtype)
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).to(dtype)
    return (q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1)


def honest(x, w):
    gate, up = F.linear(x, decode_q4_1(w, x.dtype)).chunk(2, dim=-1)
    return (F.silu(gate) * up,)


def run(x, w):
    rows = max(1, w.shape[0] // 100)
    decode_q4_1(w[:rows], x.dtype)
    return honest(x, w)
