# Zeroes its input, so that a reference that is called later answers zeros.
#
# task: gelu
# device: cpu
# class: D6
# expect: incorrect

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x.zero_()
        return torch.zeros_like(x)
