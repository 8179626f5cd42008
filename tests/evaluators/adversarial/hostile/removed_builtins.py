# Takes away the built-in functions.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash compile_error rejected

import builtins

import torch
from torch import nn

for name in ("dict", "getattr", "isinstance", "len", "list", "str", "type"):
    delattr(builtins, name)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
