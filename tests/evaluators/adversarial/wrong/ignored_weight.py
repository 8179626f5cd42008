# Has no weight and answers as if it were all ones.
#
# task: matmul_relu
# device: cpu
# class: A3
# expect: incorrect/parameters_ignored incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, x):
        return torch.relu(x.sum(dim=1, keepdim=True)).repeat(1, self.columns)
