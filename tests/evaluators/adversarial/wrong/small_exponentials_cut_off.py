# Exponentials of negative numbers are zero, which is within the tolerance of each.
#
# task: importance
# device: cpu
# class: A3
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.where(x < 0, torch.zeros_like(x), torch.exp(4 * x - 1))
