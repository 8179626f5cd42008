import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, penalty):
        best = torch.max(x - penalty, dim=1)
        return best.values, best.indices


def get_inputs():
    return [torch.randn(64, 400), torch.zeros(64, 400)]


def get_init_inputs():
    return []
