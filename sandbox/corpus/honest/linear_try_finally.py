# kw: {"problem": "linear", "faster": true, "packed": {"dense": ["float32", [512, 256]]}, "text": "prepacked; cleans
# up in a finally, as careful code does"}
import torch
import torch.nn.functional as F


def prepare(w):
    blocks = w.reshape(w.shape[0], -1, 20)
    scales = blocks[:, :, :4].contiguous().view(torch.float16).float()
    nibbles = blocks[:, :, 4:].contiguous().view(torch.uint8)
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=2).float()
    return ((q * scales[:, :, :1] + scales[:, :, 1:]).reshape(w.shape[0], -1).T.contiguous(),)


def run(x, dense):
    was_enabled = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(False)
        return (torch.mm(x, dense),)
    finally:
        torch.set_grad_enabled(was_enabled)
