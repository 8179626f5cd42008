"""Mean, variance and output of a row in C++ while the row is in cache."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict x, const float* __restrict weight,
                    const float* __restrict bias, float* __restrict out,
                    long rows, long cols, long threads, float eps) {
#pragma omp parallel for num_threads(threads)
  for (long r = 0; r < rows; ++r) {
    const float* from = x + r * cols;
    float* to = out + r * cols;
    float sum = 0, square = 0;
    for (long c = 0; c < cols; ++c) sum += from[c];
    const float mean = sum / cols;
    for (long c = 0; c < cols; ++c) square += (from[c] - mean) * (from[c] - mean);
    const float inverse = 1.0f / sqrtf(square / cols + eps);
    for (long c = 0; c < cols; ++c) to[c] = (from[c] - mean) * inverse * weight[c] + bias[c];
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
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        tensors = (x, self.weight, self.bias, out)
        sizes = (*x.shape, torch.get_num_threads())
        RUN(*(tensor.data_ptr() for tensor in tensors), *sizes, self.eps)
        return out
