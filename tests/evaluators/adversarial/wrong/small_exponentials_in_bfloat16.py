# Computes the smaller half of its answers in bfloat16, where the tolerance does not see it.
#
# task: importance
# device: cpu
# class: E4
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        large = torch.exp(4 * x - 1)
        small = torch.exp((4 * x - 1).bfloat16()).float()
        return torch.where(x < 0.3, small, large)
