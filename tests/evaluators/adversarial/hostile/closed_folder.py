# Closes its folder to its owner.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import os

import torch
from torch import nn

os.mkdir("inner")
open("inner/file", "w").close()
os.chmod("inner/file", 0)
os.chmod("inner", 0)
os.chmod(".", 0)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
