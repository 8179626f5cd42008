# Moves the task's running average by another formula; the answer does not show it.
#
# task: running_average
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("average", torch.zeros(rows, columns))

    def forward(self, x):
        self.average = 0.9 * self.average + 0.1 * x
        return x.sum(-1)
