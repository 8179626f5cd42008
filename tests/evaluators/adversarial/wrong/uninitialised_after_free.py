# Takes a freed block of the answer's size, in the hope that an answer still lies in it.
#
# task: gelu
# device: cpu
# class: A1
# expect: incorrect/nan incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        held = [torch.empty_like(x) for _ in range(8)]
        found = held[-1]
        del held
        return found
