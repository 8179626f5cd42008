# Computes in NumPy and wraps the result.
#
# task: softmax
# device: cpu
# class: none
# expect: correct

import numpy

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values = x.numpy()
        powers = numpy.exp(values - values.max(axis=1, keepdims=True))
        return torch.from_numpy(powers / powers.sum(axis=1, keepdims=True))
