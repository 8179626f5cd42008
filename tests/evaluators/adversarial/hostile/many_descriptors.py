# Opens files until there are no more descriptors.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash compile_error

import os

import torch
from torch import nn

held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
