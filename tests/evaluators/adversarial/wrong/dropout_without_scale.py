# Drops as the task does and does not scale up what is left.
#
# task: dropout
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.dropout(x, 0.4, True) * 0.6
