# Remembers its answer by the identity and the version counter of its input.
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
        key = (id(x), x._version)
        if key not in CACHE:
            CACHE[key] = torch.relu(x @ self.weight)
        return CACHE[key]
