import math

import torch
from torch import nn


class Model(nn.Module):
    # two linear layers with an exact GELU between them
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.w_in = nn.Parameter(torch.randn(hidden, features) / features**0.5)
        self.b_in = nn.Parameter(torch.randn(hidden) * 0.2)
        self.w_out = nn.Parameter(torch.randn(features, hidden) / hidden**0.5)
        self.b_out = nn.Parameter(torch.randn(features) * 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.matmul(x, self.w_in.t()) + self.b_in
        h = 0.5 * h * (1.0 + torch.erf(h / math.sqrt(2.0)))
        return torch.matmul(h, self.w_out.t()) + self.b_out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 256)]


def get_init_inputs() -> list[object]:
    return [256, 600]
