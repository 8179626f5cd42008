"""Batched matrix product with scale and bias, cut at zero."""

import torch
import torch.nn as nn

BATCH = 32
N = 96
K = 96
M = 96
SCALE = 0.125


class Model(nn.Module):
    """relu((a @ b) * scale + bias) for a (BATCH, N, K), b (BATCH, K, M) and bias (M,)."""

    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.bmm(a, b) * self.scale + self.bias)


def get_inputs() -> list:
    return [torch.randn(BATCH, N, K), torch.randn(BATCH, K, M)]


def get_init_inputs() -> list:
    return [M, SCALE]
