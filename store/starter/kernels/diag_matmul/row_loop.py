"""Scales one row after the other from Python; little arithmetic, all overhead."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.stack([a[i] * b[i] for i in range(a.shape[0])])
