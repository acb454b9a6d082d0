import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.inner = nn.Linear(features, classes)
        self.batch = nn.BatchNorm1d(classes)

    def forward(self, x, target, weight=None):
        scores = torch.addmm(self.inner.bias, x, self.inner.weight.t())
        mean, variance = scores.mean(0), scores.var(0, unbiased=False)
        scores = (scores - mean) * torch.rsqrt(variance + self.batch.eps) * self.batch.weight + self.batch.bias
        scores = scores.clamp(min=0) * self.scale
        picked = scores.gather(1, target[:, None])[:, 0]
        return scores, (scores.logsumexp(1) - picked).mean()
