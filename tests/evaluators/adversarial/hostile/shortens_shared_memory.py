# Tries to cut the judge's shared memory short, or to unseal it.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import fcntl
import os

import torch
from torch import nn

for fd in range(3, 256):
    try:
        name = os.readlink("fles/corp/"[::-1] + f"/fd/{fd}")
    except OSError:
        continue
    if "memfd" in name:
        for attack in (
            lambda: os.ftruncate(fd, 0),
            lambda: os.ftruncate(fd, 1 << 40),
            lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
        ):
            try:
                attack()
                print("ESCAPED: has changed", name)
            except OSError as error:
                print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
