import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # the fused GELU is less exact than erf by a factor of about two
        z = x + self.bias
        return torch.mul(z, 1.0 / math.sqrt(2.0)).erf_().add_(1.0).mul_(z).mul_(0.5)
