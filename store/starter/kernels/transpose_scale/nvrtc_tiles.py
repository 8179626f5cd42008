"""CUDA tiles of 32 x 32 through padded shared memory, compiled by NVRTC."""

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void transpose(const float* x, const float* scale, const float* bias,
                                     float* out, int rows, int cols) {
  __shared__ float tile[32][33];
  const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32;
  for (int i = threadIdx.y; i < 32; i += 8)
    if (r + i < rows && c < cols) tile[i][threadIdx.x] = x[(long long)(r + i) * cols + c];
  __syncthreads();
  const int row = r + threadIdx.x, col = blockIdx.x * 32;
  for (int i = threadIdx.y; i < 32; i += 8)
    if (row < rows && col + i < cols)
      out[(long long)(col + i) * rows + row] =
          tile[threadIdx.x][i] * scale[col + i] + bias[row];
}
"""


class ModelNew(nn.Module):
    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols, 1))
        self.bias = nn.Parameter(torch.randn(rows))
        self.kernel = torch.cuda._compile_kernel(SOURCE, "transpose")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(cols, rows, device=x.device)
        grid = ((cols + 31) // 32, (rows + 31) // 32, 1)
        args = [x, self.scale, self.bias, out, rows, cols]
        self.kernel(grid=grid, block=(32, 8, 1), args=args)
        return out
