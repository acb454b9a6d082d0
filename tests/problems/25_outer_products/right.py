import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(rows, columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # the sums are short, so float64 costs little and leaves one rounding
        return torch.mm(a.double().t(), b.double()).add_(self.start).to(a.dtype)
