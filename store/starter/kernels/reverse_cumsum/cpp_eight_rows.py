"""Scans eight rows at once in C++, so that no addition waits for the one before."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* __restrict x, float* __restrict out, long rows, long cols) {
  for (long r = 0; r < rows; r += 8) {
    const long some = rows - r < 8 ? rows - r : 8;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (some == 8)
      for (long c = cols - 1; c >= 0; --c)
        for (long i = 0; i < 8; ++i) out[i * cols + c] = sum[i] += x[i * cols + c];
    else
      for (long c = cols - 1; c >= 0; --c)
        for (long i = 0; i < some; ++i) out[i * cols + c] = sum[i] += x[i * cols + c];
    x += 8 * cols;
    out += 8 * cols;
  }
}
"""


def build(source: str, *flags: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cpp").write_text(source)
        command = ["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", *flags]
        subprocess.run([*command, "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "kernel.so"))


RUN = build(SOURCE).run
RUN.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2
RUN.restype = None


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        RUN(x.data_ptr(), out.data_ptr(), *x.shape)
        return out
