import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.prior = nn.Parameter(torch.zeros(classes))

    # along the batch instead of the classes
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x + self.prior, dim=0)
