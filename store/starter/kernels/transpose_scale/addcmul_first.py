"""Does the arithmetic in the input's layout with one addcmul and transposes at the end."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols, 1))
        self.bias = nn.Parameter(torch.randn(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self.bias.unsqueeze(1), x, self.scale.t()).t().contiguous()
