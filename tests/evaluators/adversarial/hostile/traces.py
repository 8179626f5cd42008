# Tries to trace its parent and everything else it sees.
#
# task: matmul_relu
# device: cpu
# class: D3
# expect: correct
# needs: seccomp

import ctypes
import os

import torch
from torch import nn

C = ctypes.CDLL(None, use_errno=True)
TRACE = getattr(C, "ecartp"[::-1])
ATTACH, SEIZE = 16, 0x4206
try:
    names = os.listdir("/proc")
except OSError as error:
    print("refused", error)
    names = [str(pid) for pid in range(1, 5000)]
for name in [str(os.getppid()), *names]:
    if name.isdigit() and int(name) != int(os.readlink("/proc/self")):
        for how in (ATTACH, SEIZE):
            if TRACE(ctypes.c_long(how), ctypes.c_long(int(name)), None, None) == 0:
                print("ESCAPED: traces", name)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
