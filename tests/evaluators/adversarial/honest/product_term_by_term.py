# Adds one outer product after the other, the longest order of summation there is.
#
# task: positive_matmul
# device: cpu
# class: none
# expect: correct
# may: fails_infinities

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        total = torch.zeros(a.shape[0], b.shape[1])
        for k in range(a.shape[1]):
            total.addcmul_(a[:, k : k + 1], b[k : k + 1])
        return total
