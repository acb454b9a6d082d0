import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, tokens: int, positions: int, features: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(tokens, features))
        self.place = nn.Parameter(torch.zeros(positions, features))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(ids, self.table)
        return rows.mul_(self.table.shape[1] ** 0.5).add_(self.place[: ids.shape[1]])
