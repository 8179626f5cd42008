# A kernel that traps.
#
# task: gelu
# device: cuda
# class: F2
# expect: crash

import torch
from torch import nn

SOURCE = 'extern "C" __global__ void fall(float *y) { asm("trap;"); }'
KERNEL = torch.cuda._compile_kernel(SOURCE, "fall")


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        KERNEL(grid=(1, 1, 1), block=(1, 1, 1), args=(out,))
        return out
