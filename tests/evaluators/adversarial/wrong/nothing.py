# Forgets to return.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/incorrect_type

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        torch.softmax(x, dim=1)
