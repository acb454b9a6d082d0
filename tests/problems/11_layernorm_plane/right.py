import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(rows, columns))
        self.bias = nn.Parameter(torch.zeros(rows, columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=(-2, -1), keepdim=True)
        variance = centred.square().mean(dim=(-2, -1), keepdim=True)
        return centred.div_(variance.add_(1e-5).sqrt_()).mul_(self.weight).add_(self.bias)
