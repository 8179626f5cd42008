# Replaces the shape of all tensors by a property that computes an answer when it is described.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected incorrect crash

import torch
from torch import nn

WAITING = {}
SHAPE = torch._C.TensorBase.shape


def described(self):
    source = WAITING.pop(id(self), None)
    if source is not None:
        self.copy_(nn.functional.gelu(source))
    return SHAPE.__get__(self)


torch.Tensor.shape = property(described)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING.clear()
        WAITING[id(out)] = x
        return out
