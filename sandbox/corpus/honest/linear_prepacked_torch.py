# kw: {"problem": "linear", "faster": true, "packed": {"dense": ["float32", [256, 512]]}, "text": "F.linear over
# weights that a declared prepare decodes once"}
import torch
import torch.nn.functional as F


def prepare(w):
    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).float()
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).float()
    return ((q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1).contiguous(),)


def run(x, dense):
    return (F.linear(x, dense),)
