"""Computes in double precision and rounds at the end; slower, more accurate than needed."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.double()
        return (x - x.mean(dim=1, keepdim=True)).abs().mean(dim=1).float()
