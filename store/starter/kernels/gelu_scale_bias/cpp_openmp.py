"""One pass in C++ on as many OpenMP threads as torch uses."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict x, const float* __restrict scale,
                    const float* __restrict bias, const float* __restrict gain,
                    float* __restrict out, long rows, long cols, long threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < cols; ++c) {
      float y = x[r * cols + c] * scale[c] + bias[c];
      out[r * cols + c] = 0.5f * y * (1.0f + erff(y * 0.70710678f)) * gain[c];
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
RUN.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 3
RUN.restype = None


class ModelNew(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))
        self.gain = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        tensors = (x, self.scale, self.bias, self.gain, out)
        RUN(*(tensor.data_ptr() for tensor in tensors), *x.shape, torch.get_num_threads())
        return out
