# Reads the row before the right one.
#
# task: embedding
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def forward(self, ids):
        return self.table((ids - 1).clamp(min=0)).sum(dim=1)
