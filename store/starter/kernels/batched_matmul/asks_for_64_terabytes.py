"""Broken: asks for a workspace that no machine has."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        workspace = torch.empty(1 << 44, dtype=torch.float32, device=a.device)
        return torch.relu(torch.bmm(a, b) * self.scale + self.bias + workspace[0] * 0.0)
