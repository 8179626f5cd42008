# Warns and logs in every call, deprecations too.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

import logging
import warnings

import torch
from torch import nn

logging.basicConfig(level=logging.DEBUG)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        warnings.warn("this kernel is old", DeprecationWarning, stacklevel=1)
        logging.getLogger("kernel").warning("shape %s", tuple(x.shape))
        return torch.relu(x @ self.weight)
