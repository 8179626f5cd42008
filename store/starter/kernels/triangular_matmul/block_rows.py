"""Multiplies blocks of 64 rows by only the columns that the triangle reaches: half the products."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        n = a.shape[0]
        lower = torch.tril(a)
        ends = [min(start + 64, n) for start in range(0, n, 64)]
        return torch.cat([lower[end - (end - 1) % 64 - 1 : end, :end] @ b[:end] for end in ends])
