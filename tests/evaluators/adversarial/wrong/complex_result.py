# A complex tensor whose real part is right.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/incorrect_dtype

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1).to(torch.complex64)
