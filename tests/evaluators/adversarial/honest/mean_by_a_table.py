# Keeps a vector of ones over n per shape and means by products with it.
#
# task: large_mean
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn

TABLES = {}


class ModelNew(nn.Module):
    def forward(self, x):
        width = x.shape[1]
        if width not in TABLES:
            TABLES[width] = torch.full((width,), 1.0 / width)
        return torch.mv(x, TABLES[width])
