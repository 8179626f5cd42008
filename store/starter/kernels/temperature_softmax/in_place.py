"""Stable softmax by hand, in place on one buffer."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x - x.amax(dim=-1, keepdim=True)
        y.mul_(1.0 / self.temperature).exp_()
        return y.div_(y.sum(dim=-1, keepdim=True))
