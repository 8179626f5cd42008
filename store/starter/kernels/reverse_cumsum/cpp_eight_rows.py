"""Scans eight rows at once in C++, so that no addition waits for the one before."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* __restrict x, float* __restrict out, long rows, long cols,
                    long threads) {
#pragma omp parallel for num_threads(threads)
  for (long r = 0; r < rows; r += 8) {
    const float* __restrict from = x + r * cols;
    float* __restrict to = out + r * cols;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (rows - r >= 8)
      for (long c = cols - 1; c >= 0; --c)
        for (long i = 0; i < 8; ++i) to[i * cols + c] = sum[i] += from[i * cols + c];
    else
      for (long i = 0; i < rows - r; ++i)
        for (long c = cols - 1; c >= 0; --c) to[i * cols + c] = sum[i] += from[i * cols + c];
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
RUN.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 3
RUN.restype = None


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        RUN(x.data_ptr(), out.data_ptr(), *x.shape, torch.get_num_threads())
        return out
