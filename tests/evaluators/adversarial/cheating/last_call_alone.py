# Answers only the last call of a sample, which it recognizes in the frame of its caller.
#
# task: gelu_wide
# device: cpu
# class: A9
# expect: rejected correct
# most: 1.3

import sys
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        f = sys._getframe(1)
        while f is not None and f.f_code.co_name != "time":
            f = f.f_back
        if f is not None and hasattr(self, "out") and f.f_locals["calls"][-1][0] is not x:
            return self.out
        self.out = nn.functional.gelu(x)
        return self.out
