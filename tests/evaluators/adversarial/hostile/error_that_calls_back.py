# An error whose text never ends.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash timeout rejected
# config: first_call_s=2

import torch
from torch import nn

class Endless(Exception):
    def __str__(self):
        while True:
            pass


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        raise Endless
