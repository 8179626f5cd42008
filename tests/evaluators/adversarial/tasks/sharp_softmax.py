import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 15, dim=1)


def get_inputs():
    return [torch.randn(64, 768)]


def get_init_inputs():
    return []
