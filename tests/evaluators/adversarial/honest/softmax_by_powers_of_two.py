# Scales once and uses powers of two.
#
# task: sharp_softmax
# device: cpu
# class: none
# expect: correct
# may: fails_scaled

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        scaled = x * (15 * 1.4426950408889634)
        powers = torch.exp2(scaled - scaled.amax(dim=1, keepdim=True))
        return powers * (1 / powers.sum(dim=1, keepdim=True))
