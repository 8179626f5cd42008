# A terabyte by strides of zero.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/incorrect_shape

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(1).expand(1 << 38)
