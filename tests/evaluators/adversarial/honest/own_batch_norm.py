# Normalises a batch by hand and keeps the running statistics as the task does.
#
# task: batch_norm
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        norm = self.norm
        variance, mean = torch.var_mean(x, dim=0, unbiased=False)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (x.shape[0] / (x.shape[0] - 1)), norm.momentum)
        norm.num_batches_tracked.add_(1)
        return (x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias
