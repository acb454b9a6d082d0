import torch
from torch import nn


class Model(nn.Module):
    # logarithm of the softmax of each row, after an offset for each class
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.prior = nn.Parameter(torch.randn(classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = x + self.prior
        z = z - z.amax(dim=-1, keepdim=True)
        return z - torch.log(torch.exp(z).sum(dim=-1, keepdim=True))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(600, 1000)]


def get_init_inputs() -> list[object]:
    return [1000]
