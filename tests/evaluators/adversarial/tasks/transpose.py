import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1)


def get_inputs():
    return [torch.randn(48, 80)]


def get_init_inputs():
    return []
