# Of equal scores the last come first.
#
# task: best_scores
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.sort(x.flip(1), dim=1, descending=True, stable=True)
        return values[:, :6].contiguous(), x.shape[1] - 1 - places[:, :6]
