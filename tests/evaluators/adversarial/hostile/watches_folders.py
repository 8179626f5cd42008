# Asks to be told what happens in folders that it may not read.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: seccomp

import ctypes
import fcntl
import os

import torch
from torch import nn

C = ctypes.CDLL(None, use_errno=True)
for name, attack in {
    "inotify_init": lambda: C.inotify_init() >= 0,
    "inotify_init1": lambda: C.inotify_init1(0) >= 0,
    "fanotify": lambda: C.fanotify_init(0, 0) >= 0,
    "dnotify": lambda: fcntl.fcntl(os.open("/usr", os.O_RDONLY), 1026, 0x8000001F) == 0,
    "a lease": lambda: fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, 0) == 0,
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
