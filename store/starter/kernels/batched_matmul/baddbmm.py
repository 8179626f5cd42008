"""Scale and bias inside the product by baddbmm, the cut in place."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.bias, a, b, alpha=self.scale).relu_()
