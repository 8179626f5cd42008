"""C++ tiles of 32 x 32 so that reads and writes both stay in cache, arithmetic included."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* __restrict x, const float* __restrict scale,
                    const float* __restrict bias, float* __restrict out, long rows, long cols,
                    long threads) {
#pragma omp parallel for num_threads(threads)
  for (long c0 = 0; c0 < cols; c0 += 16)
    for (long r0 = 0; r0 < rows; r0 += 16) {
      const long r1 = r0 + 16 < rows ? r0 + 16 : rows, c1 = c0 + 16 < cols ? c0 + 16 : cols;
      float tile[16][16];
      for (long r = r0; r < r1; ++r)
        for (long c = c0; c < c1; ++c) tile[c - c0][r - r0] = x[r * cols + c];
      for (long c = c0; c < c1; ++c)
        for (long r = r0; r < r1; ++r)
          out[c * rows + r] = tile[c - c0][r - r0] * scale[c] + bias[r];
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
RUN.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3
RUN.restype = None


class ModelNew(nn.Module):
    def __init__(self, rows: int, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols, 1))
        self.bias = nn.Parameter(torch.randn(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(cols, rows)
        tensors = (x, self.scale, self.bias, out)
        threads = torch.get_num_threads()
        RUN(*(tensor.data_ptr() for tensor in tensors), rows, cols, threads)
        return out
