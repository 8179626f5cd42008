# Right, and written over its input.
#
# task: gelu
# device: cpu
# class: D6
# expect: incorrect/input_mutated

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x, out=None) if False else x.copy_(nn.functional.gelu(x)).clone()
