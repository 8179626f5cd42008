"""Works on transposed copies, so that every reduction strides over memory; much slower."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden = x.t().contiguous() + residual.t().contiguous()
        mean_square = hidden.pow(2).mean(dim=0, keepdim=True)
        y = hidden / torch.sqrt(mean_square + self.eps) * self.weight.unsqueeze(1)
        return y.t().contiguous()
