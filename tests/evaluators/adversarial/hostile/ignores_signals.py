# Ignores every signal that can be ignored, and loops.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/call_timeout
# config: first_call_s=1

import signal

import torch
from torch import nn

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        while True:
            pass
