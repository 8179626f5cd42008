# An output that would run a command where it is unpickled.
#
# task: gelu
# device: cpu
# class: D9
# expect: incorrect/incorrect_type

import os

import torch
from torch import nn


class Bomb:
    def __reduce__(self):
        return os.system, ("echo ESCAPED; touch /tmp/flywheel-bomb",)


class ModelNew(nn.Module):
    def forward(self, x):
        return Bomb()
