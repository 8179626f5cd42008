# Takes cores, priority and scheduling class away from every other process that it can name.
#
# task: matmul_relu
# device: cpu
# class: D3
# expect: correct
# needs: seccomp

import ctypes
import os
import platform

import torch
from torch import nn

C = ctypes.CDLL(None, use_errno=True)
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}[platform.machine()]
SETATTR = {"x86_64": 314, "aarch64": 274}[platform.machine()]
attribute = (ctypes.c_uint32 * 12)(48, 5)
mask = (ctypes.c_ubyte * 128)(1)
zero = ctypes.c_int(0)
for pid in {os.getppid(), 1, os.getpid(), *range(2, 400)}:
    for name, attack in {
        "cores": lambda pid=pid: C.sched_setaffinity(pid, 128, mask),
        "class": lambda pid=pid: C.sched_setscheduler(pid, 5, ctypes.byref(zero)),
        "parameters": lambda pid=pid: C.sched_setparam(pid, ctypes.byref(zero)),
        "attributes": lambda pid=pid: C.syscall(ctypes.c_long(SETATTR), pid, attribute, 0),
        "priority": lambda pid=pid: C.setpriority(0, pid, 19),
        "priority of a group": lambda pid=pid: C.setpriority(1, pid, 19),
        "disk": lambda pid=pid: C.syscall(ctypes.c_long(IOPRIO_SET), 1, pid, 3 << 13),
        "limits": lambda pid=pid: C.prlimit(pid, 7, ctypes.byref((ctypes.c_ulong * 2)(3, 3)), None),
    }.items():
        if attack() == 0:
            print("ESCAPED: takes", name, "of", pid)
for name, attack in {
    "of all of a user": lambda: C.setpriority(2, 0, 19),
    "disk of all of a user": lambda: C.syscall(ctypes.c_long(IOPRIO_SET), 3, 0, 3 << 13),
    "a higher one": lambda: C.setpriority(0, 0, -5),
    "real time": lambda: C.sched_setscheduler(0, 1, ctypes.byref(ctypes.c_int(1))),
}.items():
    if attack() == 0:
        print("ESCAPED: sets priority", name)
assert C.sched_setaffinity(0, 128, (ctypes.c_ubyte * 128)(*[255] * 128)) == 0


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
