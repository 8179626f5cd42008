# A hundred thousand outputs.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: incorrect rejected crash

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return [torch.relu(x @ self.weight)] * 100_000
