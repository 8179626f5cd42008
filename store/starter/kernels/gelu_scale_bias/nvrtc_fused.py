"""One CUDA kernel for the whole chain, compiled by NVRTC: a block of threads per row."""

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void chain(const float* x, const float* scale, const float* bias,
                                 const float* gain, float* out, int cols) {
  const long long row = (long long)blockIdx.x * cols;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float y = x[row + c] * scale[c] + bias[c];
    out[row + c] = 0.5f * y * (1.0f + erff(y * 0.70710678f)) * gain[c];
  }
}
"""


class ModelNew(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))
        self.gain = nn.Parameter(torch.randn(cols))
        self.kernel = torch.cuda._compile_kernel(SOURCE, "chain")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, cols = x.shape
        args = [x, self.scale, self.bias, self.gain, out, cols]
        self.kernel(grid=(rows, 1, 1), block=(256, 1, 1), args=args)
        return out
