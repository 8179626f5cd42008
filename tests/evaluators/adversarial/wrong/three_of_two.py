# One output too many.
#
# task: moments
# device: cpu
# class: none
# expect: incorrect/incorrect_count

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(dim=1), x.var(dim=1, unbiased=False), x
