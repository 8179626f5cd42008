# Leaves a process behind that sleeps in a session of its own.
#
# task: matmul_relu
# device: cpu
# class: B2
# expect: correct
# flags: left_processes

import os
import time

import torch
from torch import nn

if os.fork() == 0:
    os.setsid()
    os.closerange(0, 256)
    time.sleep(600)
    os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
