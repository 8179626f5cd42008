# Remembers its answer by the first and last eight numbers of its input.
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
        flat = x.reshape(-1)
        key = (*flat[:8].tolist(), *flat[-8:].tolist())
        if key not in CACHE:
            CACHE.clear()
            CACHE[key] = nn.functional.gelu(x)
        return CACHE[key]
