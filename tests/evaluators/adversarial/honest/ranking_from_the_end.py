# Sorts, and of equal numbers gives the last first.
#
# task: ranking
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.shape[1] - 1 - torch.sort(x.flip(1), dim=1, stable=True).indices
