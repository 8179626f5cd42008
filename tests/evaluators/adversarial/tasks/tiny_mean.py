import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 1e-4).mean(dim=1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []
