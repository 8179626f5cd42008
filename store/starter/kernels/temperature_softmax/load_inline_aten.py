"""The same softmax as a torch C++ extension built by load_inline, to show what that build costs."""

import os
import sysconfig
import tempfile

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
torch::Tensor softmax(torch::Tensor x, double temperature) {
  auto y = x - x.amax(-1, true);
  y.mul_(1.0 / temperature).exp_();
  return y.div_(y.sum(-1, true));
}
"""

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # ninja of the environment
with tempfile.TemporaryDirectory() as folder:
    EXTENSION = load_inline(
        "starter_softmax", SOURCE, functions=["softmax"], build_directory=folder
    )


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return EXTENSION.softmax(x, self.temperature)
