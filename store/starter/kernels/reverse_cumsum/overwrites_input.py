"""Wrong: the right answer, written over the caller's input."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.copy_(x.flip(1).cumsum(1).flip(1))
        return x.clone()
