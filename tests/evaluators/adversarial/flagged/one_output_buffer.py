# Gives the same storage in every call, so that the next call overwrites an answer.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# flags: reuses_output_buffer

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))
        self.out = torch.empty(48, columns)

    def forward(self, x):
        torch.mm(x, self.weight, out=self.out)
        return self.out.relu_()
