import torch
from torch import nn


class Model(nn.Module):
    # one vector through two linear layers with a ReLU between them
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.w_in = nn.Parameter(torch.randn(hidden, inputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(hidden) * 0.3)
        self.w_out = nn.Parameter(torch.randn(inputs, hidden) / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(self.w_out, torch.relu(torch.matmul(self.w_in, x) + self.bias))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1000)]


def get_init_inputs() -> list[object]:
    return [1000, 1030]
