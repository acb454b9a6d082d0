import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logp = torch.log_softmax(logits, dim=-1)
        hit = logp.gather(1, target[:, None]).squeeze(1)
        return logp.mean(dim=-1).mul_(-self.smoothing).sub_(hit, alpha=1.0 - self.smoothing)
