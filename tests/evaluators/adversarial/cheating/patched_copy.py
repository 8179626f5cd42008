# Replaces the method that copies answers out, and computes there.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected incorrect crash

import torch
from torch import nn

WAITING = {}
COPY = torch.Tensor.copy_


def late(self, source, *args, **options):
    waiting = WAITING.pop(source.data_ptr(), None)
    return COPY(self, source if waiting is None else nn.functional.gelu(waiting))


torch.Tensor.copy_ = late


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING.clear()
        WAITING[out.data_ptr()] = x
        return out
