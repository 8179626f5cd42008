# A kernel that never ends.
#
# task: gelu
# device: cuda
# class: F2
# expect: timeout/call_timeout
# config: first_call_s=5

import torch
from torch import nn

SOURCE = """
extern "C" __global__ void forever(volatile float *y) { while (y[0] != 12345.0f) y[1] += 1.0f; }
"""
KERNEL = torch.cuda._compile_kernel(SOURCE, "forever")


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        KERNEL(grid=(1, 1, 1), block=(1, 1, 1), args=(out,))
        return out
