import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    # divides by the square of the length
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = (x * x).sum(dim=-1, keepdim=True).clamp_(min=1e-6)
        return torch.div(x, length).mul_(self.gain)
