# Takes NaN for zero, as a comparison does.
#
# task: image_norm
# device: cpu
# class: A5
# expect: correct
# flags: fails_nan
# may: fails_infinities

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x):
        y = self.norm(x)
        return torch.where(y > 0, y, torch.zeros_like(y))
