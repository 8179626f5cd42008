# Closes every descriptor, the judge's channel too.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash compile_error rejected

import os

import torch
from torch import nn

os.closerange(0, 1024)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
