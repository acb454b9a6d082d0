# kw: {"problem": "mlp", "faster": false, "text": "the incumbent, and about one per cent of its work again"}
import torch
import torch.nn.functional as F


def decode(w):
    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).float()
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).float()
    return (q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1)


def honest(x, w):
    gate, up = F.linear(x, decode(w)).chunk(2, dim=-1)
    return (F.silu(gate) * up,)


def run(x, w):
    rows = max(1, w.shape[0] // 100)
    decode(w[:rows])
    return honest(x, w)
