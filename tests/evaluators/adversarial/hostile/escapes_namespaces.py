# Tries to make namespaces, mount, change its user, its root, its limits and the clock.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: seccomp

import ctypes
import os
import resource
import time

import torch
from torch import nn

C = ctypes.CDLL(None, use_errno=True)
for name, attack in {
    "a namespace": lambda: C.unshare(0x20000) == 0,
    "a mount": lambda: C.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0,
    "a root": lambda: C.chroot(b".") == 0,
    "a clock": lambda: C.clock_settime(0, ctypes.create_string_buffer(16)) == 0,
    "a hostname": lambda: C.sethostname(b"x", 1) == 0,
    "a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)) is None,
    "a device": lambda: os.mknod("device", 0o20666, os.makedev(1, 1)) is None,
    "a key": lambda: C.syscall(ctypes.c_long(248), b"user", b"x", b"x", ctypes.c_long(1), -4) > 0,
}.items():
    try:
        if attack():
            print("ESCAPED: has got", name)
    except (OSError, ValueError) as error:
        print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
