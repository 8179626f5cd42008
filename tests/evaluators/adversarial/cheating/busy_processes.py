# Processes load the machine and are stopped while it is called itself.
#
# task: large_matmul
# device: cpu
# class: D7
# expect: rejected correct
# flags: left_processes
# may: baseline_drift
# most: 1.5

import os
import signal

import torch

SEND = getattr(os, bytes.fromhex("6b696c6c").decode())
HOGS = []
for _ in range(2):
    hog = os.fork()
    if hog == 0:
        while True:
            pass
    HOGS.append(hog)


def signalled(number):
    for one in HOGS:
        SEND(one, number)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        signalled(signal.SIGSTOP)
        try:
            return a @ b
        finally:
            signalled(signal.SIGCONT)
