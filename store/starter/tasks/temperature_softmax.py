"""Softmax of each row at a temperature, on logits far from zero."""

import torch
import torch.nn as nn

ROWS = 512
COLS = 1024
TEMPERATURE = 0.5


class Model(nn.Module):
    """softmax(x / temperature) over the last dimension of (ROWS, COLS)."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x / self.temperature, dim=-1)


def get_inputs() -> list:
    return [torch.randn(ROWS, COLS) + 60.0]


def get_init_inputs() -> list:
    return [TEMPERATURE]
