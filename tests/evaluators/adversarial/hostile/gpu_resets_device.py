# Resets the device under its worker.
#
# task: gelu
# device: cuda
# class: F2
# expect: crash rejected

import ctypes
import glob

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        DRIVER = ctypes.CDLL("libcuda.so.1")
        DRIVER.cuDevicePrimaryCtxReset_v2(0)
        return nn.functional.gelu(x)
