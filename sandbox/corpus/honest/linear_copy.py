# kw: {"problem": "linear", "faster": false, "text": "the incumbent, statement by statement"}
import torch
import torch.nn.functional as F


def decode_q4_1(w, dtype):
    import torch

    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).to(dtype)
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).to(dtype)
    return (q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1)


def run(x, w):
    return (F.linear(x, decode_q4_1(w, x.dtype)),)
