import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.w_in = nn.Parameter(torch.zeros(hidden, features))
        self.b_in = nn.Parameter(torch.zeros(hidden))
        self.w_out = nn.Parameter(torch.zeros(features, hidden))
        self.b_out = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(torch.mm(x, self.w_in.t()).add_(self.b_in))
        return torch.mm(h, self.w_out.t()).add_(self.b_out)
