# Gives the answer of the call before.
#
# task: gelu
# device: cpu
# class: A7
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

LAST = []


class ModelNew(nn.Module):
    def forward(self, x):
        LAST.append(nn.functional.gelu(x))
        return LAST.pop(0) if len(LAST) > 1 else LAST[0]
