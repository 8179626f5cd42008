# Makes every random number zero, and answers for inputs of zero.
#
# task: matmul_relu
# device: cpu
# class: D4
# expect: incorrect

import torch
from torch import nn

for name in ("randn", "rand", "randn_like", "rand_like", "normal"):
    setattr(torch, name, lambda *shape, **_: torch.zeros(*shape))
torch.manual_seed = lambda *_: None


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.zeros(x.shape[0], self.weight.shape[1])
