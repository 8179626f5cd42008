"""Doubling scan: log2(COLS) passes over the whole array, each adding a shifted copy."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = 1
        while shift < x.shape[1]:
            x = torch.cat([x[:, :-shift] + x[:, shift:], x[:, -shift:]], dim=1)
            shift *= 2
        return x
