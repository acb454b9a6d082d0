import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # the fused norm folds the mean into the offset, which cancels where x is close to it
        grouped = x.reshape(len(x), self.groups, -1)
        centred = grouped - grouped.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        normal = centred.div_(variance.add_(1e-5).sqrt_()).view(x.shape)
        return normal.mul_(self.weight.view(-1, 1, 1)).add_(self.bias.view(-1, 1, 1))
