# Kills its parent and its grandparent.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash compile_error rejected
# needs: pid_namespace

import os
import signal

import torch
from torch import nn

for _ in range(2):
    try:
        getattr(os, bytes.fromhex("6b696c6c").decode())(os.getppid(), signal.SIGKILL)
    except OSError as error:
        print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
