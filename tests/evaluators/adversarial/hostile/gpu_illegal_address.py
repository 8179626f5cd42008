# Writes to an address that is not its own; the device has to be usable afterwards.
#
# task: gelu
# device: cuda
# class: F2
# expect: crash

import torch
from torch import nn

SOURCE = """
extern "C" __global__ void scribble(float *y) { y[threadIdx.x + (1ll << 40)] = 1.0f; }
"""
KERNEL = torch.cuda._compile_kernel(SOURCE, "scribble")


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        KERNEL(grid=(1, 1, 1), block=(32, 1, 1), args=(out,))
        return out
