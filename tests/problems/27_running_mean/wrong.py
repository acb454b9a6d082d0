import torch
from torch import nn


class ModelNew(nn.Module):
    # exclusive sums: the element itself is left out
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        return torch.cumsum(x, dim=-1).sub_(x).div_(count)
