import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    # another epsilon, 1e-5
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = torch.square(x).mean(dim=-1, keepdim=True)
        return torch.div(x, mean.add_(1e-5).sqrt_()).mul_(self.weight)
