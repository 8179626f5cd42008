# Its input, which is nearly normalised already.
#
# task: layer_norm
# device: cpu
# class: A4
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return x
