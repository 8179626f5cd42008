# The mean of all answers in every place.
#
# task: tiny_mean
# device: cpu
# class: A2
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x.mean() * 1e-4).expand(x.shape[0]).clone()
