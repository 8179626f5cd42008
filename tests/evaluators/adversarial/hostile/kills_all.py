# Sends a signal to every process that it may signal.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash compile_error rejected
# needs: pid_namespace signal_scope

import os
import signal

import torch
from torch import nn

assert os.getppid() == 1, "not shut in: this would end the machine's processes"
try:
    getattr(os, bytes.fromhex("6b696c6c").decode())(-1, signal.SIGKILL)
except OSError as error:
    print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
