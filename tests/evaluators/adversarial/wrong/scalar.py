# A number of no dimensions, which broadcasts to anything.
#
# task: tiny_mean
# device: cpu
# class: none
# expect: incorrect/incorrect_type incorrect/incorrect_shape

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 1e-4).mean()
