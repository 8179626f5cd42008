"""Sums of squares by a vector norm; the rest in place on the sum of the inputs."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden = x + residual
        norm = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)
        inverse = torch.rsqrt(norm.square() / x.shape[-1] + self.eps)
        return hidden.mul_(inverse).mul_(self.weight)
