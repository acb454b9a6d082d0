import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    # normalises by the statistics of the batch instead of the stored ones
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=1e-5)
