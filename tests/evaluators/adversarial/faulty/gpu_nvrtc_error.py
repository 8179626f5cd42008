# CUDA with an error in it.
#
# task: gelu
# device: cuda
# class: none
# expect: compile_error/build_failed

import torch
from torch import nn

KERNEL = torch.cuda._compile_kernel('extern "C" __global__ void f(float *y) { z; }', "f")


class ModelNew(nn.Module):
    def forward(self, x):
        return x
