# Gives an answer on the processor.
#
# task: gelu
# device: cuda
# class: none
# expect: incorrect/incorrect_device

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x.cpu())
