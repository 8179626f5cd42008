# Replaces the function that describes outputs by one that computes them first.
#
# task: gelu_large
# device: cpu
# class: D2
# expect: rejected correct
# most: 1.3

import sys
import torch
from torch import nn

MODULE = sys.modules["evaluators.worker.loop"]
REAL = MODULE.describe
WAITING = []


def late(value):
    if WAITING:
        x, out = WAITING.pop()
        WAITING.clear()
        out.copy_(nn.functional.gelu(x))
    return REAL(value)


MODULE.describe = late


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING[:] = [(x, out)]
        return out
