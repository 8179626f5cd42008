# Has scale and shift and no running statistics.
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
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(features))
        self.norm.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
        scale = self.norm.weight.view(1, -1, 1, 1) * torch.rsqrt(variance + 1e-5)
        return torch.relu((x - mean) * scale + self.norm.bias.view(1, -1, 1, 1))
