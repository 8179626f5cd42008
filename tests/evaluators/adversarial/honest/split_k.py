# Adds partial products over slices of the inner dimension, in another order than eager.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        half = x.shape[1] // 2
        upper = x[:, half:] @ self.weight[half:]
        lower = x[:, :half] @ self.weight[:half]
        return torch.relu(upper + lower)
