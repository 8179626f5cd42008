"""Product of the lower triangle of a square matrix with a dense matrix."""

import torch
import torch.nn as nn

N = 512


class Model(nn.Module):
    """tril(a) @ b for a and b of shape (N, N)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(a) @ b


def get_inputs() -> list:
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs() -> list:
    return []
