import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.offset = nn.Parameter(torch.zeros(features))

    # the gate is not held below one
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.relu(x + 3.0) / 6.0
        return x * gate * self.gain + self.offset
