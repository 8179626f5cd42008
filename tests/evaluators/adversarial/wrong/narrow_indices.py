# Indices as 32-bit numbers.
#
# task: argmax
# device: cpu
# class: none
# expect: incorrect/incorrect_dtype

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1).int()
