# Swaps the class of a plain tensor after it is made.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected/lazy_output

import torch
from torch import nn

class Later(torch.Tensor):
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        out = nn.functional.gelu(x)
        out.__class__ = Later
        return out
