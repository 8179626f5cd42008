# Searches for pivots from the end, so that of equal magnitudes it names the last.
#
# task: pivots
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.shape[1] - 1 - x.abs().flip(1).argmax(dim=1)
