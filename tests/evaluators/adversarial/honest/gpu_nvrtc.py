# CUDA compiled at run time.
#
# task: gelu
# device: cuda
# class: none
# expect: correct
# may: fails_empty_rows

import torch
from torch import nn

SOURCE = """
extern "C" __global__ void gelu(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
"""
KERNEL = torch.cuda._compile_kernel(SOURCE, "gelu")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        KERNEL(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), args=(x, out, n))
        return out
