"""C++ loops that never touch the upper triangle, four rows at a time."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* __restrict a, const float* __restrict b,
                    float* __restrict out, long n, long threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (long i = 0; i < n; i += 4) {
    const long rows = n - i < 4 ? n - i : 4;
    float* __restrict o = out + i * n;
    for (long j = 0; j < rows * n; ++j) o[j] = 0;
    for (long k = 0; k < i + rows; ++k) {
      float w[4] = {0, 0, 0, 0};
      for (long r = 0; r < rows; ++r) w[r] = k <= i + r ? a[(i + r) * n + k] : 0;
      const float* __restrict row = b + k * n;
      if (rows == 4)
        for (long j = 0; j < n; ++j) {
          o[j] += w[0] * row[j];
          o[j + n] += w[1] * row[j];
          o[j + 2 * n] += w[2] * row[j];
          o[j + 3 * n] += w[3] * row[j];
        }
      else
        for (long r = 0; r < rows; ++r)
          for (long j = 0; j < n; ++j) o[j + r * n] += w[r] * row[j];
    }
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
RUN.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
RUN.restype = None


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        tensors = (a, b, out)
        RUN(*(tensor.data_ptr() for tensor in tensors), a.shape[0], torch.get_num_threads())
        return out
