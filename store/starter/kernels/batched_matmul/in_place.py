"""The reference's steps with the last three in place on the product."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b).mul_(self.scale).add_(self.bias).clamp_(min=0.0)
