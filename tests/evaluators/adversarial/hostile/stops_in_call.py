# Stops itself in a call.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/call_timeout
# config: first_call_s=2

import os
import signal

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return torch.relu(x @ self.weight)
