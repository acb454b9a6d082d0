import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.ones(features))

    # right values, but as a column
    def forward(self, guess: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        gap = torch.sub(guess, target).abs_()
        held = torch.minimum(gap, self.delta)
        return gap.sub_(held, alpha=0.5).mul_(held).mean(dim=-1, keepdim=True)
