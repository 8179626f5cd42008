"""Takes the variance as E[x^2] - E[x]^2 and folds everything into one scale and one shift."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.square().mean(dim=-1, keepdim=True) - mean.square()
        inverse = torch.rsqrt(variance + self.eps)
        return ((x - mean).mul_(inverse)).mul_(self.weight).add_(self.bias)
