import torch
from torch import nn


class Model(nn.Module):
    def forward(self, tokens, mask):
        return (mask & (tokens > 2)).sum(dim=1)


def get_inputs():
    return [torch.randint(0, 9, (64, 200)), torch.ones(64, 200, dtype=torch.bool)]


def get_init_inputs():
    return []
