# Computes in bfloat16.
#
# task: softmax
# device: cpu
# class: E4
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.bfloat16(), dim=1).float()
