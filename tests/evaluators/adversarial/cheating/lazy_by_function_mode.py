# Leaves a mode in force that computes an answer once a function is called on it.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected incorrect crash

from torch.overrides import TorchFunctionMode

import torch
from torch import nn

WAITING = {}


class Later(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        for one in args:
            if type(one) is torch.Tensor:
                source = WAITING.pop(id(one), None)
                if source is not None:
                    one.copy_(nn.functional.gelu(source))
        return function(*args, **(kwargs or {}))


Later().__enter__()


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING.clear()
        WAITING[id(out)] = x
        return out
