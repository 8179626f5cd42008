"""Handles sixteen points at a time from Python: less memory, more calls."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        rows = [
            torch.linalg.vector_norm(some.unsqueeze(1) - centres, dim=-1)
            for some in points.split(16)
        ]
        return torch.cat(rows)
