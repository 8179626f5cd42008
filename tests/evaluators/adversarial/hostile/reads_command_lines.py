# Looks for other processes: their numbers, command lines, groups and figures.
#
# task: matmul_relu
# device: cpu
# class: D3
# expect: correct
# needs: hidden_processes

import os

import torch
from torch import nn

mine = {os.getpid()}
for pid in [*range(1, 5000), os.getppid()]:
    if pid in mine:
        continue
    for name in ("cmdline", "comm", "stat", "status", "cgroup", "environ", "wchan"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                text = file.read()
        except OSError:
            continue
        # What is seen may be its own first process alone.
        if os.getppid() != 1 or pid != 1:
            print("ESCAPED: reads", pid, name, text[:80])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
