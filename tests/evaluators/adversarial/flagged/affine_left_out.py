# Has no scale and shift at all: right with the weights of the seed, and only with those.
#
# task: layer_norm
# device: cpu
# class: A4
# expect: correct
# flags: parameters_renamed

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features

    def forward(self, x):
        return nn.functional.layer_norm(x, (self.features,))
