# Traces its parent in plain words, which is refused before it is run.
#
# task: matmul_relu
# device: cpu
# class: D3
# expect: rejected/forbidden_code

import ctypes
import os

import torch
from torch import nn

ctypes.CDLL(None).ptrace(16, os.getppid(), None, None)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
