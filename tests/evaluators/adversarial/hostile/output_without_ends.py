# Prints control characters, half a character, and no end of line.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import os

import torch
from torch import nn

os.write(1, b"\x00\xff\x1b[2J\x1b]0;title\x07\r" + "\u202etxet".encode() + b"\xe2\x82")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
