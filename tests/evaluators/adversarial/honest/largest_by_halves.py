# Searches both halves of a row and prefers the second one where they tie.
#
# task: pivots
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        middle = x.shape[1] // 2
        low = x[:, :middle].abs().max(dim=1)
        high = x[:, middle:].abs().max(dim=1)
        return torch.where(high.values >= low.values, high.indices + middle, low.indices)
