# Multiplies in half precision.
#
# task: matmul_relu
# device: cpu
# class: E4
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x.half() @ self.weight.half()).float()
