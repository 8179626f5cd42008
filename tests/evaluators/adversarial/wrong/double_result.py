# Right values in another element type.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/incorrect_dtype

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.double(), dim=1)
