import torch
from torch import nn


class ModelNew(nn.Module):
    # the halves are exchanged
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=-1)
        return torch.sigmoid(left).mul_(torch.tanh(right))
