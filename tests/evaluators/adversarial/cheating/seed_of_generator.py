# Reads the generator's seed in its process and answers what it would have drawn from it.
#
# task: matmul_relu
# device: cpu
# class: A6
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        state = torch.get_rng_state()
        torch.manual_seed(torch.initial_seed())
        guessed = torch.randn(x.shape)
        torch.set_rng_state(state)
        return torch.relu(guessed @ self.weight)
