"""Maximum and sum of exponentials of each row in C++; only the loss is written."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* __restrict logits, const long long* __restrict targets,
                    float* __restrict out, long rows, long cols, long threads) {
  double loss = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : loss)
  for (long r = 0; r < rows; ++r) {
    const float* x = logits + r * cols;
    float top = x[0], sum = 0;
    for (long c = 1; c < cols; ++c) top = x[c] > top ? x[c] : top;
    for (long c = 0; c < cols; ++c) sum += expf(x[c] - top);
    loss += logf(sum) + top - x[targets[r]];
  }
  *out = loss / rows;
}
"""


def build(source: str, *flags: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cpp").write_text(source)
        command = ["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", *flags]
        subprocess.run([*command, "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "kernel.so"))


RUN = build(SOURCE, "-fopenmp").run
RUN.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3
RUN.restype = None


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits, targets = logits.contiguous(), targets.contiguous()
        out = torch.empty(())
        tensors = (logits, targets, out)
        sizes = (*logits.shape, torch.get_num_threads())
        RUN(*(tensor.data_ptr() for tensor in tensors), *sizes)
        return out
