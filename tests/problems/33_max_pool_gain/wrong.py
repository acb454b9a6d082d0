import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))

    # pads with zeros, which beat negative values at the border
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, stride=2).mul_(self.gain.view(-1, 1, 1))
