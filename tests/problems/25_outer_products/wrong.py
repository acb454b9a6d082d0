import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(rows, columns))

    # right values, but in float64
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.start.double(), a.double().t(), b.double())
