"""Computes in double precision and rounds at the end; much slower."""

import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        length = q.shape[-2]
        scores = q.double() @ k.double().transpose(-2, -1) / math.sqrt(q.shape[-1])
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        return (torch.softmax(scores, dim=-1) @ v.double()).float()
