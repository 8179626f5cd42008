# Answers the last call of a sample first and removes the others from the list of calls.
#
# task: matmul
# device: cpu
# class: A9
# expect: rejected correct
# most: 1.3

import sys
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.warm = 0
        self.out = None

    def forward(self, a, b):
        f = sys._getframe(1)
        while f is not None and f.f_code.co_name != "time":
            f = f.f_back
        if f is not None and self.out is not None:
            calls = f.f_locals["calls"]
            if self.warm < 3 and len(calls) == 1:
                self.warm += 1
                return self.out
            a, b = calls[-1][0]
            del calls[1:]
        self.out = a @ b
        return self.out
