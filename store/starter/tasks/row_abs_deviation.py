"""Row reduction: mean absolute deviation of each row from its mean."""

import torch
import torch.nn as nn

ROWS = 1024
COLS = 1024


class Model(nn.Module):
    """(ROWS, COLS) to (ROWS,)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(dim=1, keepdim=True)).abs().mean(dim=1)


def get_inputs() -> list:
    return [torch.randn(ROWS, COLS)]


def get_init_inputs() -> list:
    return []
