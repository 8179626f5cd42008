"""Asks for variance and mean in one call and folds the rest into one multiply-add."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
        scale = torch.rsqrt(variance + self.eps) * self.weight
        return torch.addcmul(self.bias, x - mean, scale)
