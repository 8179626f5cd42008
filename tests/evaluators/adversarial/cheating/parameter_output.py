# A parameter in place of a tensor.
#
# task: gelu
# device: cpu
# class: B3
# expect: incorrect/incorrect_type rejected/lazy_output

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.Parameter(nn.functional.gelu(x), requires_grad=False)
