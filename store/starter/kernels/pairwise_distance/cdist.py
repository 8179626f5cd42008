"""Calls the built-in cdist."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        return torch.cdist(points, centres)
