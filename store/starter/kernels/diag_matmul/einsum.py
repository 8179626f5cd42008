"""States the row scaling as an einsum and leaves the rest to torch."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum("i,ij->ij", a, b)
