import torch
from torch import nn


class ModelNew(nn.Module):
    # the strict triangle: the diagonal is lost
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(torch.tril(a, -1), b)
