# Works in blocks of 128 columns and loses what is carried into the last, shorter one.
#
# task: cumsum
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat([torch.cumsum(x[:, :256], 1), torch.cumsum(x[:, 256:], 1)], dim=1)
