import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(filters, channels, 5))
        self.bias = nn.Parameter(torch.zeros(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # the bias comes last: summed first, it would cost small products their low bits
        return F.conv1d(x, self.weight, padding=2).add_(self.bias[:, None]).relu_()
