# A tensor whose own reduction would run a command where it is unpickled.
#
# task: gelu
# device: cpu
# class: D9
# expect: rejected/lazy_output incorrect

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        out.__reduce_ex__ = lambda _: (os.system, ("touch /tmp/flywheel-bomb",))
        return out
