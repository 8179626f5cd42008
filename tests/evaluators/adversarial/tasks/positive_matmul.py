import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(64, 2048), torch.rand(2048, 64)]


def get_init_inputs():
    return []
