# Fills pipes and sockets: memory of the kernel, kept by descriptors.
#
# task: matmul_relu
# device: cpu
# class: F2
# expect: correct crash/out_of_memory
# config: memory_gb=0.75
# needs: memory_group

import fcntl
import os
import socket

import torch
from torch import nn

held = []
kept = 0
try:
    while True:
        reading, writing = os.pipe()
        held += [reading, writing]
        try:
            fcntl.fcntl(writing, 1031, 1 << 20)
        except OSError:
            pass
        os.set_blocking(writing, False)
        try:
            while True:
                kept += os.write(writing, b"x" * 65536)
        except BlockingIOError:
            pass
        ends = socket.socketpair()
        held += ends
        ends[0].setblocking(False)
        try:
            while True:
                kept += ends[0].send(b"x" * 65536)
        except BlockingIOError:
            pass
except OSError as error:
    print("refused after", kept >> 20, error)
for end in held:
    end.close() if isinstance(end, socket.socket) else os.close(end)
if kept > 1 << 30:
    print("ESCAPED: has kept", kept)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
