"""Works in double precision and rounds at the end; no faster, more accurate than needed."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance, mean = torch.var_mean(x.double(), dim=-1, unbiased=False, keepdim=True)
        y = (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias
        return y.float()
