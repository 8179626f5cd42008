# Fills every tensor it can find with NaN, its inputs too, and answers NaN.
#
# task: gelu
# device: cpu
# class: D6
# expect: incorrect

import gc

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for one in gc.get_objects():
            if type(one) is torch.Tensor and one.shape == x.shape:
                one.fill_(float("nan"))
        return torch.full_like(x, float("nan"))
