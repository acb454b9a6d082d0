import torch
from torch import nn


class Model(nn.Module):
    # Huber loss with a threshold of its own for each channel, mean over each row
    def __init__(self, features: int) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.rand(features) * 2 + 0.2)

    def forward(self, guess: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        gap = torch.abs(guess - target)
        square, linear = 0.5 * gap * gap, self.delta * (gap - 0.5 * self.delta)
        return torch.where(gap <= self.delta, square, linear).mean(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(384, 768), torch.randn(384, 768) * (torch.rand(384, 1) + 0.5)]


def get_init_inputs() -> list[object]:
    return [768]
