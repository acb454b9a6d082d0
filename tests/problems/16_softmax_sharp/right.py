import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # the fused softmax is less exact than these steps
        z = x * self.sharpness
        z.sub_(z.amax(dim=-1, keepdim=True)).exp_()
        return z.div_(z.sum(dim=-1, keepdim=True))
