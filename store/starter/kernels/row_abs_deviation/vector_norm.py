"""Takes the absolute sum as a vector norm: one pass fewer, if the norm is as fast as a sum."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=1, keepdim=True)
        return torch.linalg.vector_norm(centred, ord=1, dim=1) / x.shape[1]
