import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, inputs: int, outputs: int, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    # the bias comes after the division and the activation
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu_(F.linear(x, self.weight).div_(self.divisor), 0.1).add_(self.bias)
