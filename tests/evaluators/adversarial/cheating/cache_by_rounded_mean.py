# Remembers its answer by the rounded mean of its input.
#
# task: layer_norm
# device: cpu
# class: A7
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

CACHE = {}


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        key = round(x.mean().item(), 1)
        if key not in CACHE:
            CACHE[key] = self.norm(x)
        return CACHE[key]
