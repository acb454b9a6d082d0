import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = x.amax(dim=-1, keepdim=True)
        return torch.sub(x, top).exp_().sum(dim=-1).log_().add_(top.squeeze(-1))
