# Wants a GPU where there is none.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: crash/exception compile_error/init_failed

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x.cuda() @ self.weight.cuda())
