# Breaks the operation that the reference would call, so that zeros would be right.
#
# task: gelu
# device: cpu
# class: D5
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

nn.functional.gelu = lambda x, *_, **__: torch.zeros_like(x)
nn.Module.__call__ = lambda self, *args, **_: self.forward(*args)
torch._C._nn.gelu = nn.functional.gelu


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
