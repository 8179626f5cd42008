# An exception that would run a command where it is unpickled.
#
# task: gelu
# device: cpu
# class: D9
# expect: crash/exception

import os

import torch
from torch import nn


class Bomb(Exception):
    def __reduce__(self):
        return os.system, ("touch /tmp/flywheel-bomb",)


class ModelNew(nn.Module):
    def forward(self, x):
        raise Bomb
