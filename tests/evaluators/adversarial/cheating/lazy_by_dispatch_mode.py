# Leaves a mode in force that computes an answer once an operation reads it.
#
# task: gelu
# device: cpu
# class: B3
# expect: incorrect

from torch.utils._python_dispatch import TorchDispatchMode

import torch
from torch import nn

WAITING = {}


class Later(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for one in args:
            if type(one) is torch.Tensor:
                source = WAITING.pop(one.data_ptr(), None)
                if source is not None:
                    one.copy_(nn.functional.gelu(source))
        return function(*args, **(kwargs or {}))


Later().__enter__()


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING.clear()
        WAITING[out.data_ptr()] = x
        return out
