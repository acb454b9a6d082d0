import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        # the first half of the tokens never meets the second half of the keys
        half, tokens, root = q.shape[-2] // 2, q.shape[-2], q.shape[-1] ** 0.5
        out = torch.empty_like(q)
        for begin, end in ((0, half), (half, tokens)):
            scores = torch.matmul(q[..., begin:end, :], k[..., :end, :].transpose(-2, -1)).div_(root)
            future = torch.ones(end - begin, end, dtype=torch.bool).triu(begin + 1)
            scores.masked_fill_(future, float("-inf"))
            out[..., begin:end, :] = torch.matmul(torch.softmax(scores, dim=-1), v[..., :end, :])
        return out
