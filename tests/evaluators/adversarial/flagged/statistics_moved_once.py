# Moves the running statistics in its first call alone.
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
        self.calls = 0

    def forward(self, x):
        norm = self.norm
        self.calls += 1
        held = (norm.running_mean, norm.running_var) if self.calls == 1 else (None, None)
        return torch.relu(nn.functional.batch_norm(x, *held, norm.weight, norm.bias, True, 0.1, norm.eps))
