import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    # epsilon is added to the standard deviation, not to the variance
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, dim=(2, 3), correction=0, keepdim=True)
        return (x - mean) / (torch.sqrt(variance) + 1e-5) * self.weight + self.bias
