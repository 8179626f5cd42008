# Fills anonymous memory that its children share, and files that children hold open for it.
#
# task: matmul_relu
# device: cpu
# class: F2
# expect: crash/out_of_memory
# may: left_processes
# config: memory_gb=0.75
# needs: memory_group

import mmap
import os
import time

import torch
from torch import nn

for _ in range(8):
    block = mmap.mmap(-1, 192 << 20)
    for at in range(0, len(block), 4096):
        block[at] = 1
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    block.close()
print("ESCAPED: its children hold", 8 * 192, "MiB")
time.sleep(5)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
