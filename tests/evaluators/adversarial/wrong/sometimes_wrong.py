# Wrong in one call of three, by chance.
#
# task: gelu
# device: cpu
# class: A8
# expect: incorrect/incorrect_numerical rejected/memorised_output

import random

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = nn.functional.gelu(x)
        return out + 1 if random.random() < 1 / 3 else out
