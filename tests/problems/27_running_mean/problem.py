import torch
from torch import nn


class Model(nn.Module):
    # mean of all elements up to and including this one, along each row
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        return torch.cumsum(x, dim=-1) / count


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(384, 1024) + torch.randn(384, 1)]


def get_init_inputs() -> list[object]:
    return []
