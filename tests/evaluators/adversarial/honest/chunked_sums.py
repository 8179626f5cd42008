# Sums in chunks of another order, scales once at the end; the answers are of the order of 1e-6.
#
# task: tiny_mean
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = torch.stack([chunk.sum(dim=1) for chunk in x.flip(1).split(100, dim=1)])
        return parts.sum(dim=0) * (1e-4 / x.shape[1])
