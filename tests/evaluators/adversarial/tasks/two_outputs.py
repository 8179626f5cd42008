import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x), torch.tanh(x)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
