import torch
from torch import nn


class Model(nn.Module):
    # rotary embedding of queries and keys: the first and the second half of each head are turned together
    cosine: torch.Tensor
    sine: torch.Tensor

    def __init__(self, positions: int, size: int) -> None:
        super().__init__()
        angle = torch.arange(positions)[:, None] * 10000.0 ** (-torch.arange(size // 2) / (size // 2))
        self.register_buffer("cosine", torch.cos(angle))
        self.register_buffer("sine", torch.sin(angle))

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return x * torch.cat((self.cosine, self.cosine), dim=-1) + turned * torch.cat((self.sine, self.sine), dim=-1)

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.turn(q), self.turn(k)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 12, 160, 64), torch.randn(2, 4, 160, 64)]


def get_init_inputs() -> list[object]:
    return [160, 64]
