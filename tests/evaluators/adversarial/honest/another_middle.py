# The middle of a stable sort, which need not be the place that median names.
#
# task: middle
# device: cpu
# class: none
# expect: correct
# may: fails_nan

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.sort(x, dim=1, stable=True)
        middle = (x.shape[1] - 1) // 2
        return values[:, middle].clone(), places[:, middle].clone()
