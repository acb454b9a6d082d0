# kw: {"problem": "linear", "faster": false, "text": "the incumbent with its work done twice"}
import torch
import torch.nn.functional as F


def decode(w):
    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).float()
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).float()
    return (q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1)


def honest(x, w):
    return (F.linear(x, decode(w)),)


def run(x, w):
    honest(x, w)
    return honest(x, w)
