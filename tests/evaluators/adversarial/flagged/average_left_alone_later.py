# Moves the running average in as many calls as the verdict takes, and in no later one.
#
# task: running_average
# device: cpu
# class: A4
# expect: correct
# flags: state_differs

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("average", torch.zeros(rows, columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 22:
            self.average.lerp_(x, 0.1)
        return x.sum(-1)
