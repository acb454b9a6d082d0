import torch
from torch import nn


class ModelNew(nn.Module):
    # the divergence the other way round
    def forward(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        log_p, log_q = torch.log_softmax(p, dim=-1), torch.log_softmax(q, dim=-1)
        return (torch.exp(log_q) * (log_q - log_p)).sum(dim=-1)
