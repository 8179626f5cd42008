import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(128, 512).bfloat16(), torch.randn(512, 128).bfloat16()]


def get_init_inputs():
    return []
