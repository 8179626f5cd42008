# Finalizers and exit handlers that raise, loop and fork.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash rejected

import atexit
import os
import time

import torch
from torch import nn


class Clinging:
    def __del__(self):
        raise RuntimeError("not yet")


class Forking:
    def __del__(self):
        if os.fork() == 0:
            time.sleep(600)


@atexit.register
def never():
    while True:
        time.sleep(1)


FORKING = Forking()


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        Clinging()
        return torch.relu(x @ self.weight)
