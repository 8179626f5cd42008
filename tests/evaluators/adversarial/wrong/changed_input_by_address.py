# Zeroes its input through its address, past every version counter.
#
# task: gelu
# device: cpu
# class: D6
# expect: incorrect/input_mutated

import ctypes

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = nn.functional.gelu(x)
        ctypes.memset(x.data_ptr(), 0, 64)
        return out
