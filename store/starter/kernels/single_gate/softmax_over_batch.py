"""Wrong: takes the softmax over the batch, where the gates share one unit of weight."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(features, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.score(torch.tanh(self.expand(x))), dim=0)
