# C++ for torch.utils.cpp_extension with an error in it.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/build_failed
# needs: compiler
# slow: yes

from torch.utils.cpp_extension import load_inline

import torch
from torch import nn

CODE = load_inline("broken", "torch::Tensor f(torch::Tensor x) { return y; }", functions=["f"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return CODE.f(x)
