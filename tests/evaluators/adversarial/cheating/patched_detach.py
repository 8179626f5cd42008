# Replaces the method by which answers are fetched, and computes there.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected incorrect crash

import torch
from torch import nn

WAITING = {}
DETACH = torch.Tensor.detach


def late(self):
    source = WAITING.pop(self.data_ptr(), None)
    return DETACH(self) if source is None else nn.functional.gelu(source)


torch.Tensor.detach = late


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING.clear()
        WAITING[out.data_ptr()] = x
        return out
