# A tuple of its own type that computes when it is iterated over.
#
# task: two_outputs
# device: cpu
# class: B3
# expect: rejected/lazy_output
# most: 1.3

import torch
from torch import nn


class Later(tuple):
    def __new__(cls, x):
        self = super().__new__(cls, (None, None))
        self.x = x
        return self

    def __iter__(self):
        if not hasattr(self, "held"):
            self.held = (nn.functional.gelu(self.x), torch.tanh(self.x))
        return iter(self.held)

    def __getitem__(self, n):
        return list(self)[n]


class ModelNew(nn.Module):
    def forward(self, x):
        return Later(x)
