import torch
from torch import nn


class Model(nn.Module):
    # softmax of each row after a sharpening factor
    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor([sharpness]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = x * self.sharpness
        grown = torch.exp(z - z.amax(dim=-1, keepdim=True))
        return grown / grown.sum(dim=-1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(640, 512)]


def get_init_inputs() -> list[object]:
    return [8.0]
