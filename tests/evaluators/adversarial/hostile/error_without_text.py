# An error whose text, name and cause cannot be read.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/exception

import torch
from torch import nn

class Silent(Exception):
    def __str__(self):
        raise Silent

    __repr__ = __str__

    @property
    def __cause__(self):
        raise Silent


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        raise Silent
