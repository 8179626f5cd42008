# One right row with a stride of zero over all rows.
#
# task: gelu
# device: cpu
# class: A2
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.as_strided(nn.functional.gelu(x[:1]), x.shape, (0, 1))
