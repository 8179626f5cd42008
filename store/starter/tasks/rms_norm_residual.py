"""Residual addition followed by RMS normalisation with a weight."""

import torch
import torch.nn as nn

ROWS = 1024
COLS = 1024
EPS = 1e-6


class Model(nn.Module):
    """h / sqrt(mean(h^2) + eps) * weight with h = x + residual."""

    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden = x + residual
        mean_square = hidden.pow(2).mean(dim=-1, keepdim=True)
        return hidden / torch.sqrt(mean_square + self.eps) * self.weight


def get_inputs() -> list:
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs() -> list:
    return [COLS, EPS]
