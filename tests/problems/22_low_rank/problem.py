import torch
from torch import nn


class Model(nn.Module):
    # a linear layer whose matrix is a product of two thin ones
    def __init__(self, features: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(features, rank) / features**0.5)
        self.up = nn.Parameter(torch.randn(rank, features) / rank**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, torch.matmul(self.down, self.up))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(160, 512)]


def get_init_inputs() -> list[object]:
    return [512, 24]
