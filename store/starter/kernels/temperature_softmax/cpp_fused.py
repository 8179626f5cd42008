"""Division, maximum, exponentials and sum of a row in C++ while the row is in cache."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict x, float* __restrict out, long rows, long cols,
                    long threads, float inverse) {
#pragma omp parallel for num_threads(threads)
  for (long r = 0; r < rows; ++r) {
    const float* from = x + r * cols;
    float* to = out + r * cols;
    float top = from[0], sum = 0;
    for (long c = 1; c < cols; ++c) top = from[c] > top ? from[c] : top;
    for (long c = 0; c < cols; ++c) {
      to[c] = expf((from[c] - top) * inverse);
      sum += to[c];
    }
    const float share = 1.0f / sum;
    for (long c = 0; c < cols; ++c) to[c] *= share;
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
RUN.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 3 + [ctypes.c_float]
RUN.restype = None


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        sizes = (*x.shape, torch.get_num_threads())
        RUN(x.data_ptr(), out.data_ptr(), *sizes, 1.0 / self.temperature)
        return out
