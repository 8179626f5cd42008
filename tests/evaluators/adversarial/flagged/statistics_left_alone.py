# Normalises by the batch and never moves the running statistics.
#
# task: image_norm
# device: cpu
# class: A4
# expect: correct
# flags: state_differs

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x):
        norm = self.norm
        return torch.relu(nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.1, norm.eps))
