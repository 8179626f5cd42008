# CUDA compiled by torch.utils.cpp_extension.
#
# task: gelu
# device: cuda
# class: none
# expect: correct
# needs: nvcc
# slow: yes
# config: import_s=60

from torch.utils.cpp_extension import load_inline

import torch
from torch import nn

SOURCE = """
#include <c10/cuda/CUDAStream.h>
__global__ void gelu(const float *x, float *y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
torch::Tensor forward(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    long n = x.numel();
    auto stream = c10::cuda::getCurrentCUDAStream();
    gelu<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
CODE = load_inline("gelu", "torch::Tensor forward(torch::Tensor x);", SOURCE, functions=["forward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return CODE.forward(x)
