import torch
from torch import nn


class Model(nn.Module):
    """Rounds a product to steps."""

    def forward(self, a, b):
        return torch.round(a @ b * 16) / 16


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return []
