# kw: {"problem": "mlp", "faster": true, "packed": {"dense": ["float32", [384, 384]]}, "text": "declares its decoded
# weights and multiplies in place"}
import torch
import torch.nn.functional as F


def prepare(w):
    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).float()
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).float()
    return ((q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1).contiguous(),)


def run(x, dense):
    gate, up = F.linear(x, dense).chunk(2, dim=-1)
    return (F.silu(gate).mul_(up),)
