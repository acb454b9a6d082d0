# kw: {"problem": "norm", "faster": true, "text": "the addition, then torch's fused F.rms_norm"}
import torch
import torch.nn.functional as F


def run(x, residual, weight, eps):
    total = residual + x
    return F.rms_norm(total, weight.shape, weight, eps), total
