# Leaves two thousand files, some with names that are no text.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import os

import torch
from torch import nn

os.mkdir("files")
for number in range(2000):
    with open(b"files/\xff\n" + str(number).encode(), "w") as file:
        file.write("x")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
