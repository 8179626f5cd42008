"""Builds a mask of ones and multiplies by it before the product: more memory traffic than tril."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        position = torch.arange(a.shape[0], device=a.device)
        mask = (position.unsqueeze(1) >= position.unsqueeze(0)).float()
        return (a * mask) @ b
