"""Writes tanh as (e^2h - 1) / (e^2h + 1), several passes for one."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(features, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squared = torch.exp(2.0 * self.expand(x).clamp(-15.0, 15.0))
        return torch.softmax(self.score((squared - 1.0) / (squared + 1.0)), dim=1)
