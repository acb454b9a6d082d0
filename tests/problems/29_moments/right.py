import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = x.mean(dim=1, keepdim=True)
        return torch.sub(x, mean).square_().mean(dim=1), mean.squeeze(1)
