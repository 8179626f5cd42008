"""Elementwise chain: scale and bias per column, GELU, gain per column."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 256
COLS = 2048


class Model(nn.Module):
    """gelu(x * scale + bias) * gain for x of shape (ROWS, COLS)."""

    def __init__(self, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))
        self.gain = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * self.scale + self.bias) * self.gain


def get_inputs() -> list:
    return [torch.randn(ROWS, COLS)]


def get_init_inputs() -> list:
    return [COLS]
