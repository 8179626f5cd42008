# Leaves the element itself out of each sum.
#
# task: cumsum
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1) - x
