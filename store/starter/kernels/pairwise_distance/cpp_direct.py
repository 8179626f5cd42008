"""Sums squared differences in C++ without an intermediate array, the centres transposed."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict points, const float* __restrict centres,
                    float* __restrict out, long n, long m, long dim, long threads) {
#pragma omp parallel for num_threads(threads)
  for (long i = 0; i < n; ++i) {
    float* __restrict to = out + i * m;
    for (long j = 0; j < m; ++j) to[j] = 0;
    for (long d = 0; d < dim; ++d) {
      const float p = points[i * dim + d];
      const float* __restrict c = centres + d * m;
      for (long j = 0; j < m; ++j) to[j] += (p - c[j]) * (p - c[j]);
    }
    for (long j = 0; j < m; ++j) to[j] = sqrtf(to[j]);
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
RUN.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 4
RUN.restype = None


class ModelNew(nn.Module):
    def forward(self, points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        points, columns = points.contiguous(), centres.t().contiguous()
        n, dim = points.shape
        out = torch.empty(n, centres.shape[0])
        tensors = (points, columns, out)
        sizes = (n, centres.shape[0], dim, torch.get_num_threads())
        RUN(*(tensor.data_ptr() for tensor in tensors), *sizes)
        return out
