"""Layer normalisation of rows with weight and bias, written out."""

import torch
import torch.nn as nn

ROWS = 512
COLS = 1024
EPS = 1e-5


class Model(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension."""

    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


def get_inputs() -> list:
    return [torch.randn(ROWS, COLS) + 1.0]


def get_init_inputs() -> list:
    return [COLS, EPS]
