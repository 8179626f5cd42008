# The place of the largest number, whatever the magnitudes of negative ones.
#
# task: pivots
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.argmax(dim=1)
