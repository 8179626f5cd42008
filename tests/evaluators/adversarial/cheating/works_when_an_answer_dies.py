# Computes when the answer before the last is freed, after the call has returned.
#
# task: gelu_large
# device: cpu
# class: B2
# expect: rejected incorrect correct
# most: 1.3

import sys
import weakref
import torch
from torch import nn

WAITING = []


class Token:
    pass


def work():
    if WAITING:
        x, out = WAITING.pop()
        out.copy_(nn.functional.gelu(x))


class ModelNew(nn.Module):
    def forward(self, x):
        f = sys._getframe(1)
        while f is not None and f.f_code.co_name != "time":
            f = f.f_back
        if f is None:
            return nn.functional.gelu(x)
        out = torch.empty_like(x)
        if f.f_locals["calls"][-1][0] is x:
            out.token = Token()
            weakref.finalize(out.token, work)
            WAITING[:] = [(x, out)]
        return out
