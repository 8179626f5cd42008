# Moves the running statistics by hand, and leaves the count of batches, on which nothing depends.
#
# task: image_norm
# device: cpu
# class: none
# expect: correct
# may: fails_infinities fails_constants fails_shifted

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x):
        norm = self.norm
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        count = x.numel() // x.shape[1]
        norm.running_mean.mul_(0.9).add_(mean, alpha=0.1)
        norm.running_var.mul_(0.9).add_(variance, alpha=0.1 * count / (count - 1))
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        shift = norm.bias - mean * scale
        return torch.relu(x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1))
