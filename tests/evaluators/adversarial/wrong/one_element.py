# One element of ten thousand is wrong by two percent of what is usual.
#
# task: cumsum
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.cumsum(x, dim=1)
        out[-1, -1] += 0.2
        return out
