# Computes in inference mode.
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
        with torch.inference_mode():
            return torch.relu(x @ self.weight)
