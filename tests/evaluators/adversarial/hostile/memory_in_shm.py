# Fills files in /dev/shm, and deletes their names.
#
# task: matmul_relu
# device: cpu
# class: F2
# expect: correct crash/out_of_memory
# config: memory_gb=0.75
# needs: memory_group own_root

import os

import torch
from torch import nn

written = 0
held = []
try:
    for number in range(2000):
        held.append(os.open(f"/dev/shm/part-{number % 200}-{number}", os.O_CREAT | os.O_RDWR))
        written += os.write(held[-1], b"x" * (1 << 20))
        os.unlink(f"/dev/shm/part-{number % 200}-{number}")
        if number % 4:
            os.dup2(held[0], held.pop())
except OSError as error:
    print("refused after", written >> 20, error)
if written > 1 << 30:
    print("ESCAPED: has written", written)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
