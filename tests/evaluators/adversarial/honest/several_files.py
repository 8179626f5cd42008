# Its parts lie in a package beside it.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# files: parts/__init__.py parts/product.py

from parts.product import product

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(product(x, self.weight))
