import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        found = torch.median(x, dim=1)
        return found.values, found.indices


def get_inputs():
    return [torch.randint(0, 50, (48, 255)).float()]


def get_init_inputs():
    return []
