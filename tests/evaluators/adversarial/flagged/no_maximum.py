# Leaves out the subtraction of the maximum, so that large inputs overflow.
#
# task: softmax
# device: cpu
# class: A5
# expect: correct
# flags: fails_scaled
# may: fails_infinities fails_uneven

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        powers = torch.exp(x)
        return powers / powers.sum(dim=1, keepdim=True)
