# Starts sixty processes that wait, each in a session of its own.
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

for _ in range(60):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
    except OSError:
        break


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
