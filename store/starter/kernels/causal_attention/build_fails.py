"""Broken: the C++ text does not compile."""

import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* q, float* out, long count) {
  for (long i = 0; i < count; ++i) out[i] = scale * q[i]
}
"""

with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "kernel.cpp").write_text(SOURCE)
    command = ["g++", "-O3", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q
