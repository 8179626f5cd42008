# Raises where its parameters are read or moved.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash incorrect rejected correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()

    def state_dict(self, *_, **__):
        raise RuntimeError("nothing to see")

    def to(self, *_, **__):
        return self

    def forward(self, x):
        return torch.zeros(x.shape[0], 32)
