import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    # 3 by 3 maximum with stride 2, the border never wins; then a gain for each channel
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x, (1, 1, 1, 1), value=float("-inf"))
        windows = padded.unfold(2, 3, 2).unfold(3, 3, 2)
        return windows.amax(dim=(-2, -1)) * self.gain.view(-1, 1, 1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 24, 40, 40)]


def get_init_inputs() -> list[object]:
    return [24]
