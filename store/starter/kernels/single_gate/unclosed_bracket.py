"""Broken: a bracket is not closed, so that the text is no Python."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(features, hidden
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(x.shape[0], 1)
