# Loops inside one call of the C library, where no Python signal handler runs.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/call_timeout
# config: first_call_s=2

import ctypes

import torch
from torch import nn

ORDER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        while True:
            ctypes.CDLL(None).sleep(1000)
