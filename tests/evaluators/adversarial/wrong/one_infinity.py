# One infinite element.
#
# task: cumsum
# device: cpu
# class: D6
# expect: incorrect/nan

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.cumsum(x, dim=1)
        out[7, 11] = float("inf")
        return out
