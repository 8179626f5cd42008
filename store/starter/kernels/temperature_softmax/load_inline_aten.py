"""Softmax as a torch C++ extension by load_inline, with the headers it needs and no more."""

import os
import sysconfig
import tempfile

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/csrc/utils/pybind.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
at::Tensor softmax(const at::Tensor& x, double temperature) {
  at::Tensor y = at::sub(x, at::amax(x, {-1}, true));
  y.mul_(1.0 / temperature).exp_();
  return y.div_(at::sum(y, {-1}, true));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("softmax", &softmax); }
"""

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # ninja of the environment
with tempfile.TemporaryDirectory() as folder:
    EXTENSION = load_inline(
        "starter_softmax", SOURCE, build_directory=folder, no_implicit_headers=True
    )


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return EXTENSION.softmax(x, self.temperature)
