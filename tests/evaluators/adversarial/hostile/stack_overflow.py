# Overflows the stack of the C code below Python.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/signal

import sys

import torch
from torch import nn

sys.setrecursionlimit(1 << 30)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        nested = []
        for _ in range(2_000_000):
            nested = [nested]
        return repr(nested)
