# One zero with strides of zero over the whole shape.
#
# task: gelu
# device: cpu
# class: A2
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(1).expand(x.shape)
