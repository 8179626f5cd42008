# Returns a parameter, which is a tensor like any other.
#
# task: gelu
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.Parameter(nn.functional.gelu(x), requires_grad=False)
