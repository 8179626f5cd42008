# A sparse tensor.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect crash/exception

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1).to_sparse()
