# Names a file that leaves its folder halfway.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: rejected/forbidden_code
# files: a/b/../../../flywheel_escaped.py

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
