import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        return torch.cumsum(x, dim=-1).div_(count)
