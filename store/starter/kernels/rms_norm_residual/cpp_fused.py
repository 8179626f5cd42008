"""Sum, norm and scaling of a row in C++ while the row is in cache."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict x, const float* __restrict residual,
                    const float* __restrict weight, float* __restrict out,
                    long rows, long cols, long threads, float eps) {
#pragma omp parallel for num_threads(threads)
  for (long r = 0; r < rows; ++r) {
    float* to = out + r * cols;
    float square = 0;
    for (long c = 0; c < cols; ++c) {
      to[c] = x[r * cols + c] + residual[r * cols + c];
      square += to[c] * to[c];
    }
    const float inverse = 1.0f / sqrtf(square / cols + eps);
    for (long c = 0; c < cols; ++c) to[c] *= inverse * weight[c];
  }
}
"""


def build(source: str, *flags: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cpp").write_text(source)
        command = ["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", *flags]
        subprocess.run([*command, "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "kernel.so"))


RUN = build(SOURCE, "-fopenmp").run
RUN.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3 + [ctypes.c_float]
RUN.restype = None


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        tensors = (x, residual, self.weight, out)
        sizes = (*x.shape, torch.get_num_threads())
        RUN(*(tensor.data_ptr() for tensor in tensors), *sizes, self.eps)
        return out
