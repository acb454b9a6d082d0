import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, rows: int, features: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(rows, features))
        self.offset = nn.Parameter(torch.zeros(features))

    def forward(self, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(ids, self.table, mode="sum", per_sample_weights=weights).add_(self.offset)
