# Its parameter has another name than the task's, and the same value by the seed.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# flags: parameters_renamed

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.matrix)
