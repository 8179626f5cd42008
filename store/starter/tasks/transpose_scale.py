"""Transposition with a scale per row and a bias per column of the result."""

import torch
import torch.nn as nn

ROWS = 768
COLS = 512


class Model(nn.Module):
    """(ROWS, COLS) to a contiguous (COLS, ROWS): x^T * scale + bias."""

    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols, 1))
        self.bias = nn.Parameter(torch.randn(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous() * self.scale + self.bias


def get_inputs() -> list:
    return [torch.randn(ROWS, COLS)]


def get_init_inputs() -> list:
    return [ROWS, COLS]
