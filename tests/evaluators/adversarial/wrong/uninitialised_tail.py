# Writes all but the last rows, as a grid that is one block short does.
#
# task: gelu
# device: cpu
# class: A1
# expect: incorrect/nan incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        out[:-8] = nn.functional.gelu(x[:-8])
        return out
