# Fills files in memory that have no name and that nobody maps.
#
# task: matmul_relu
# device: cpu
# class: F2
# expect: crash/out_of_memory
# config: memory_gb=0.75
# needs: memory_group

import os
import time

import torch
from torch import nn

held = []
for number in range(24):
    held.append(os.memfd_create(f"part {number}"))
    for _ in range(64):
        os.write(held[-1], b"x" * (1 << 20))
print("ESCAPED: holds", sum(os.fstat(fd).st_size for fd in held))
time.sleep(5)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
