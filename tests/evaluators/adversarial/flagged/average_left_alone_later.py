# Moves the running average in the calls before its state is read, and in no later one.
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
        self.judged = False

    def state_dict(self, *arguments, **options):
        self.judged = self.calls > 0
        return super().state_dict(*arguments, **options)

    def forward(self, x):
        self.calls += 1
        if not self.judged:
            self.average.lerp_(x, 0.1)
        return x.sum(-1)
