# Gives one small number for every probability below it.
#
# task: sharp_softmax
# device: cpu
# class: A3
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 15, dim=1).clamp(min=1e-7)
