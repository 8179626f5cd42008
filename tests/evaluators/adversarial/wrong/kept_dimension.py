# A shape that would broadcast to the right one.
#
# task: tiny_mean
# device: cpu
# class: none
# expect: incorrect/incorrect_shape

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 1e-4).mean(dim=1, keepdim=True)
