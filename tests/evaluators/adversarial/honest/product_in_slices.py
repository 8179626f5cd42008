# Adds partial products over slices of the inner dimension, with compensation.
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
        lost = torch.zeros_like(total)
        for part, other in zip(a.split(256, dim=1), b.split(256), strict=True):
            term = part @ other - lost
            new = total + term
            lost = (new - total) - term
            total = new
        return total
