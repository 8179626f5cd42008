"""Softmax of dense rows in C++ by load_inline, with torch's stable headers, which are light."""

import os
import sysconfig
import tempfile

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <math.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor softmax(const Tensor& x, double temperature) {
  Tensor y = torch::stable::subtract(x, torch::stable::amax(x, -1, true));
  STD_TORCH_CHECK(y.is_contiguous() && y.dim() == 2, "rows that lie one after the other");
  const long rows = y.size(0), cols = y.size(1);
  const float inverse = 1.0 / temperature;
  float* row = y.mutable_data_ptr<float>();
  for (long r = 0; r < rows; ++r, row += cols) {
    float sum = 0;
    for (long c = 0; c < cols; ++c) row[c] = expf(row[c] * inverse);
    for (long c = 0; c < cols; ++c) sum += row[c];
    for (long c = 0; c < cols; ++c) row[c] /= sum;
  }
  return y;
}
STABLE_TORCH_LIBRARY(starter, m) { m.def("softmax(Tensor x, float temperature) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(starter, CPU, m) { m.impl("softmax", TORCH_BOX(&softmax)); }
"""

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # ninja of the environment
with tempfile.TemporaryDirectory() as folder:
    load_inline(
        "starter_softmax",
        SOURCE,
        extra_cflags=["-O3", "-march=native", "-ffast-math"],
        build_directory=folder,
        no_implicit_headers=True,
        is_python_module=False,
    )


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.starter.softmax(x, self.temperature)
