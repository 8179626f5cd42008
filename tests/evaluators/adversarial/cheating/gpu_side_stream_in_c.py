# Launches by the driver on a non-blocking stream that torch does not know.
#
# task: large_matmul
# device: cuda
# class: B1
# expect: incorrect rejected correct
# most: 1.5

import ctypes

import torch
from torch import nn

SOURCE = """
extern "C" __global__ void product(const float *a, const float *b, float *c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""
KERNEL = torch.cuda._compile_kernel(SOURCE, "product")
DRIVER = ctypes.CDLL("libcuda.so.1")
HANDLE = ctypes.c_void_p()
DRIVER.cuStreamCreate(ctypes.byref(HANDLE), 1)
STREAM = torch.cuda.ExternalStream(HANDLE.value)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        out = torch.empty_like(a)
        KERNEL(grid=(n // 256, n, 1), block=(256, 1, 1), args=(a, b, out, n), stream=STREAM)
        return out
