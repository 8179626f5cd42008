# The first of two outputs.
#
# task: moments
# device: cpu
# class: none
# expect: incorrect/incorrect_type

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)
