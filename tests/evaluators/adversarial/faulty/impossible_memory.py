# Wants more memory than there is.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: crash/out_of_memory

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.empty(1 << 44)
