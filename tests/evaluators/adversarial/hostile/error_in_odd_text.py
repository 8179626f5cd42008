# An error whose text holds NUL, half characters, and marks that turn the line around.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/exception

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        raise ValueError("\x00\ud800\u202eitxet\x1b[31m\U0010ffff" * 10)
