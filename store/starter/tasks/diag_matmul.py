"""Product of a diagonal matrix, given by its diagonal, with a dense matrix."""

import torch
import torch.nn as nn

N = 384
M = 384


class Model(nn.Module):
    """diag(a) @ b for a of shape (N,) and b of shape (N, M)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.diag(a) @ b


def get_inputs() -> list:
    return [torch.randn(N), torch.randn(N, M)]


def get_init_inputs() -> list:
    return []
