import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, 3, 3))
        self.bias = nn.Parameter(torch.zeros(channels))

    # a convolution in the textbook's sense: the kernel is turned round
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight.flip(2, 3), self.bias, padding=1, groups=x.shape[1])
