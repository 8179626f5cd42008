"""Two passes over each row in C++ while the row is in cache."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict x, float* __restrict out, long rows, long cols,
                    long threads) {
#pragma omp parallel for num_threads(threads)
  for (long r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    float sum = 0, deviation = 0;
    for (long c = 0; c < cols; ++c) sum += row[c];
    const float mean = sum / cols;
    for (long c = 0; c < cols; ++c) deviation += fabsf(row[c] - mean);
    out[r] = deviation / cols;
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
        out = torch.empty(x.shape[0])
        RUN(x.data_ptr(), out.data_ptr(), *x.shape, torch.get_num_threads())
        return out
