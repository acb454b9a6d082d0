import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # the upper right quarter is zero and is left out
        half = len(a) // 2
        out = torch.empty(len(a), b.shape[1], dtype=a.dtype)
        torch.mm(torch.tril(a[:half, :half]), b[:half], out=out[:half])
        torch.mm(torch.tril(a[half:], half), b, out=out[half:])
        return out
