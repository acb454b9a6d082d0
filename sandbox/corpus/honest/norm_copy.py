# kw: {"problem": "norm", "faster": false, "text": "the incumbent, statement by statement"}
import torch


def run(x, residual, weight, eps):
    total = residual + x
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
    return total * scale * weight, total
