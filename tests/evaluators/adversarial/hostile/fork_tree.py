# Processes that fork in their turn, each in a session of its own, two hundred and fifty-six in all.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash/exception
# may: left_processes

import os
import time

import torch
from torch import nn

MAIN = os.getpid()
for _ in range(8):
    try:
        os.fork()
    except OSError:
        break
if os.getpid() != MAIN:
    os.setsid()
    time.sleep(600)
    os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
