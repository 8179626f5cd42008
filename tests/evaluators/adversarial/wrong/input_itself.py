# Hands its input back.
#
# task: matmul_relu
# device: cpu
# class: A4
# expect: incorrect/incorrect_shape incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return x
