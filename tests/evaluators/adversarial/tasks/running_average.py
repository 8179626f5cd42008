import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("average", torch.zeros(rows, columns))

    def forward(self, x):
        self.average.lerp_(x, 0.1)
        return x.sum(-1)


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return [128, 512]
