# Raises KeyboardInterrupt, which no handler of Exception catches.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: crash

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        raise KeyboardInterrupt
