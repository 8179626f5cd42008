"""Sum from j on = total - sum up to j + x[j]: one scan and no flips."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        prefix = torch.cumsum(x, dim=1)
        return (x - prefix).add_(prefix[:, -1:])
