# Describes parameters without end, with names that are no text.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct rejected crash incorrect
# may: parameters_renamed

import torch
from torch import nn


class Endless(dict):
    def items(self):
        for number in range(400_000):
            yield "\ud800" * 300 + str(number), torch.empty(0)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def state_dict(self, *_, **__):
        return Endless()

    def forward(self, x):
        return torch.relu(x @ self.weight)
