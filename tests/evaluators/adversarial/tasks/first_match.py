import torch
from torch import nn


class Model(nn.Module):
    def forward(self, tokens):
        return (tokens == 4).int().argmax(dim=1)


def get_inputs():
    return [torch.randint(0, 12, (64, 200))]


def get_init_inputs():
    return []
