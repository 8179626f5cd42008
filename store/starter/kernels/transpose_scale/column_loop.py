"""Gathers every column with its own call from Python."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols, 1))
        self.bias = nn.Parameter(torch.randn(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack(x.unbind(dim=1)).mul_(self.scale).add_(self.bias)
