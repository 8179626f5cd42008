# A parameter in place of a tensor, which is a plain tensor to whoever reads it.
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
