import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    # the last column never reaches the activation
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = x + self.bias
        z[:, :-1] = F.gelu(z[:, :-1])
        return z
