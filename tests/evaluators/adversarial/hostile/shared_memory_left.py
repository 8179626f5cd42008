# Leaves shared memory, semaphores and message queues behind.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# may: left_processes

import ctypes
import os
from multiprocessing import shared_memory

import torch
from torch import nn

C = ctypes.CDLL(None)
try:
    with open(f"/dev/shm/flywheel-left-{os.getpid()}", "wb") as file:
        file.write(bytes(1 << 20))
except OSError as error:
    print("refused", error)
try:
    shared_memory.SharedMemory("flywheel-left-shm", create=True, size=4096)
except OSError as error:
    print("refused", error)
C.shmget(0x0F17, 4096, 0o1666)
C.msgget(0x0F17, 0o1666)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
