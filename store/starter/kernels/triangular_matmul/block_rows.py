"""Multiplies blocks of 64 rows by only the columns that the triangle reaches: half the products."""

import torch
import torch.nn as nn

BLOCK = 64


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        lower = torch.tril(a)
        pieces = []
        for start in range(0, a.shape[0], BLOCK):
            end = start + BLOCK
            pieces.append(lower[start:end, :end] @ b[:end])
        return torch.cat(pieces)
