"""Causal attention over heads, written out."""

import math

import torch
import torch.nn as nn

BATCH = 2
HEADS = 4
LENGTH = 128
WIDTH = 32


class Model(nn.Module):
    """softmax(q @ k^T / sqrt(WIDTH), future masked) @ v for (BATCH, HEADS, LENGTH, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        length = q.shape[-2]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v


def get_inputs() -> list:
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(3)]


def get_init_inputs() -> list:
    return []
