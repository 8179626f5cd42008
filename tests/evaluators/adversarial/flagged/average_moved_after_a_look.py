# Moves the running average when its state is read, by the inputs as they are at that time.
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
        self.owed = []

    def state_dict(self, *arguments, **options):
        for x in self.owed:
            self.average.lerp_(x, 0.1)
        self.owed = []
        self.judged = self.calls > 0
        return super().state_dict(*arguments, **options)

    def forward(self, x):
        self.calls += 1
        if not self.judged:
            self.average.lerp_(x, 0.1)
        else:
            self.owed.append(x)
        return x.sum(-1)
