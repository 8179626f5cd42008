# Asks for memory that outlives it or is not counted: System V, queues, huge pages, secret pages.
#
# task: matmul_relu
# device: cpu
# class: F2
# expect: correct
# needs: seccomp

import ctypes
import mmap
import os
import platform

import torch
from torch import nn

C = ctypes.CDLL(None, use_errno=True)
MQ_OPEN = {"x86_64": 240, "aarch64": 180}[platform.machine()]
for name, attack in {
    "System V memory": lambda: C.shmget(0, 1 << 20, 0o1600) >= 0,
    "semaphores": lambda: C.semget(0, 1, 0o1600) >= 0,
    "messages": lambda: C.msgget(0, 0o1600) >= 0,
    "a queue": lambda: C.syscall(ctypes.c_long(MQ_OPEN), b"q", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0,
    "huge pages": lambda: mmap.mmap(-1, 2 << 20, flags=0x40022).close() is None,
    "a huge file": lambda: os.memfd_create("huge", 4) >= 0,
    "secret pages": lambda: C.syscall(ctypes.c_long(447), 0) >= 0,
}.items():
    try:
        if attack():
            print("ESCAPED: has got", name)
    except OSError as error:
        print("refused", name, error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
