# An answer without data on the meta device.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/incorrect_device

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.to("meta"), dim=1)
