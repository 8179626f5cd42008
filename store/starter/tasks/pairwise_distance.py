"""Euclidean distances between all pairs of two point sets, by broadcasting."""

import torch
import torch.nn as nn

POINTS = 192
CENTRES = 192
DIM = 64


class Model(nn.Module):
    """(POINTS, DIM) and (CENTRES, DIM) to (POINTS, CENTRES)."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        difference = points.unsqueeze(1) - centres.unsqueeze(0)
        return difference.pow(2).sum(dim=-1).sqrt()


def get_inputs() -> list:
    return [torch.randn(POINTS, DIM), torch.randn(CENTRES, DIM)]


def get_init_inputs() -> list:
    return []
