"""C++ over the visible keys only, with one row of scores at a time."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
#include <stdlib.h>
extern "C" void run(const float* __restrict queries, const float* __restrict keys,
                    const float* __restrict values, float* __restrict out,
                    long heads, long length, long width, long threads) {
  const float scale = 1.0f / sqrtf(width);
#pragma omp parallel for num_threads(threads)
  for (long h = 0; h < heads; ++h) {
    const float* __restrict k = keys + h * width * length;  // (width, length)
    const float* __restrict v = values + h * length * width;
    float* __restrict scores = static_cast<float*>(malloc(length * sizeof(float)));
    for (long i = 0; i < length; ++i) {
      const float* q = queries + (h * length + i) * width;
      float* __restrict to = out + (h * length + i) * width;
      for (long j = 0; j <= i; ++j) scores[j] = 0;
      for (long d = 0; d < width; ++d)
        for (long j = 0; j <= i; ++j) scores[j] += q[d] * k[d * length + j];
      float top = scores[0], sum = 0;
      for (long j = 1; j <= i; ++j) top = scores[j] > top ? scores[j] : top;
      for (long j = 0; j <= i; ++j) {
        scores[j] = expf((scores[j] - top) * scale);
        sum += scores[j];
      }
      for (long d = 0; d < width; ++d) to[d] = 0;
      for (long j = 0; j <= i; ++j)
        for (long d = 0; d < width; ++d) to[d] += scores[j] * v[j * width + d];
      for (long d = 0; d < width; ++d) to[d] /= sum;
    }
    free(scores);
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
RUN.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 4
RUN.restype = None


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.transpose(-2, -1).contiguous(), v.contiguous()
        out = torch.empty_like(q)
        batch, heads, length, width = q.shape
        tensors = (q, k, v, out)
        sizes = (batch * heads, length, width, torch.get_num_threads())
        RUN(*(tensor.data_ptr() for tensor in tensors), *sizes)
        return out
