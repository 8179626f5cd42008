# Tries every process that /proc shows.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash compile_error rejected
# needs: pid_namespace signal_scope

import os

import torch
from torch import nn

OWN = os.getpid()
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (OWN, int(os.readlink("/proc/self"))):
        try:
            getattr(os, bytes.fromhex("6b696c6c").decode())(int(name), 0)
            if int(name) > 64:
                print("ESCAPED: may signal", name)
        except OSError:
            pass


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
