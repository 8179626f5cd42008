"""Builds the diagonal as a sparse matrix; few products, but a costly construction."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        index = torch.arange(a.shape[0], device=a.device).expand(2, -1)
        shape = (a.shape[0], a.shape[0])
        diagonal = torch.sparse_coo_tensor(index, a, shape, is_coalesced=True)
        return torch.sparse.mm(diagonal, b)
