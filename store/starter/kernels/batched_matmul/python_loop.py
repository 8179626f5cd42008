"""One product per batch element from Python, stacked at the end."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        products = [left @ right for left, right in zip(a, b, strict=True)]
        return torch.relu(torch.stack(products) * self.scale + self.bias)
