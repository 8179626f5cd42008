"""Multiplies the log-probabilities by a one-hot matrix: correct and wasteful."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        chosen = F.one_hot(targets, logits.shape[1]).float()
        return -(torch.log_softmax(logits, dim=1) * chosen).sum(dim=1).mean()
