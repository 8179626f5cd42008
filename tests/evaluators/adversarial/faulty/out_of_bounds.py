# Indexes past the end.
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
        return x[:, torch.tensor([4000])] @ self.weight
