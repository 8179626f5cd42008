# Calls itself without end.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/exception crash/signal

import torch
from torch import nn

def deeper(x):
    return deeper(x) + 1


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return deeper(x)
