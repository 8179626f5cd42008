# The compiler does not take its text.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/build_failed
# needs: compiler

import pathlib
import subprocess

import torch
from torch import nn

pathlib.Path("kernel.c").write_text("int main( {")
subprocess.run(["cc", "-c", "kernel.c"], check=True)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
