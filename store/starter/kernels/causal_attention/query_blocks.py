"""Takes a quarter of the queries at a time and only the keys that they may see."""

import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        length = q.shape[-2]
        block = -(-length // 4)
        pieces = []
        for start in range(0, length, block):
            end = min(start + block, length)
            scores = q[..., start:end, :] @ k[..., :end, :].transpose(-2, -1)
            scores /= math.sqrt(q.shape[-1])
            future = torch.ones(end - start, end, dtype=torch.bool, device=q.device)
            scores.masked_fill_(future.triu_(start + 1), float("-inf"))
            pieces.append(torch.softmax(scores, dim=-1) @ v[..., :end, :])
        return torch.cat(pieces, dim=-2)
