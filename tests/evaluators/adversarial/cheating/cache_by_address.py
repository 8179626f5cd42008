# Remembers its answer by the address of its input.
#
# task: matmul_relu
# device: cpu
# class: A7
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

CACHE = {}


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        key = x.data_ptr()
        if key not in CACHE:
            CACHE[key] = torch.relu(x @ self.weight)
        return CACHE[key]
