import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # above 20 the logarithm adds less than half a unit in the last place
        return F.softplus(self.beta * x, threshold=20.0).div_(self.beta)
