# The call raises.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: crash/exception

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        raise RuntimeError("not for this shape")
