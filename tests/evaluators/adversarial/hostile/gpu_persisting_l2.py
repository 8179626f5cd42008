# Asks for a part of the cache to be kept for it.
#
# task: gelu
# device: cuda
# class: D11
# expect: correct rejected

import ctypes

import torch
from torch import nn

DRIVER = ctypes.CDLL("libcuda.so.1")
torch.zeros(1, device="cuda")
print("limit", DRIVER.cuCtxSetLimit(6, ctypes.c_size_t(32 << 20)))


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
