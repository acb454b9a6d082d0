import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(rows, columns))
        self.bias = nn.Parameter(torch.zeros(rows, columns))

    # takes the gain as an offset from one
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, dim=(-2, -1), correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * (1.0 + self.weight) + self.bias
