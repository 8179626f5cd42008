# A constant where the mask is all ones: read as an index, every count would point at a one.
#
# task: lengths
# device: cpu
# class: A3
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, tokens, mask):
        return torch.full((tokens.shape[0],), 100, dtype=torch.int64)
