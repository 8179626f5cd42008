"""Transposes once and does the arithmetic in place on the copy."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols, 1))
        self.bias = nn.Parameter(torch.randn(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape[1], x.shape[0], device=x.device)
        return out.copy_(x.t()).mul_(self.scale).add_(self.bias)
