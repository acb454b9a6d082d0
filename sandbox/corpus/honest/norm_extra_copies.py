# kw: {"problem": "norm", "faster": false, "text": "the incumbent with copies of its inputs that nobody needs"}
import torch


def honest(x, residual, weight, eps):
    total = residual + x
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
    return total * scale * weight, total


def run(x, residual, weight, eps):
    return honest(x.clone(), residual.clone(), weight.clone(), eps)
