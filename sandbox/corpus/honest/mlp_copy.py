# kw: {"problem": "mlp", "faster": false, "text": "the incumbent, statement by statement"}
import torch
import torch.nn.functional as F


def decode(w):
    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).float()
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).float()
    return (q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1)


def run(x, w):
    gate, up = F.linear(x, decode(w)).chunk(2, dim=-1)
    return (F.silu(gate) * up,)
