import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=(2, 3), keepdim=True)
        variance = centred.square().mean(dim=(2, 3), keepdim=True)
        return centred.div_(variance.add_(1e-5).sqrt_()).mul_(self.weight).add_(self.bias)
