# Rounds its inputs to half precision before it sums them.
#
# task: tiny_mean
# device: cpu
# class: E4
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.half().float().mean(dim=1) * 1e-4
