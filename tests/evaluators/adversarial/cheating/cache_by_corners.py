# Remembers its answer by the corners of its input.
#
# task: gelu
# device: cpu
# class: A7
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

CACHE = {}


class ModelNew(nn.Module):
    def forward(self, x):
        key = (x[0, 0].item(), x[0, -1].item(), x[-1, 0].item(), x[-1, -1].item())
        if key not in CACHE:
            CACHE.clear()
            CACHE[key] = nn.functional.gelu(x)
        return CACHE[key]
