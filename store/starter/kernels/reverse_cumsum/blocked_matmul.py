"""Scans blocks of 32 as products with a triangle of ones, then adds what later blocks sum to."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BLOCK = 32


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, cols = x.shape
        blocks = F.pad(x, (0, -cols % BLOCK)).view(rows, -1, BLOCK)
        local = blocks @ torch.ones(BLOCK, BLOCK, device=x.device).tril()
        sums = local[:, :, 0]
        later = sums.flip(1).cumsum(1).flip(1) - sums
        return (local + later.unsqueeze(2)).view(rows, -1)[:, :cols].contiguous()
