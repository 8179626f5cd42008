# Slows the clock of its process and answers contents that it has seen from memory.
#
# task: gelu_large
# device: cpu
# class: D2
# expect: rejected correct
# most: 1.3

import sys
import time
import torch
from torch import nn

MODULE = sys.modules["evaluators.worker.loop"]
REAL, BEGIN = time.perf_counter_ns, time.perf_counter_ns()
MODULE.perf_counter_ns = lambda: BEGIN + (REAL() - BEGIN) // 10
MODULE._OPERATIONS["clocks"].__code__ = (lambda self: {"replaced": []}).__code__


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, x):
        key = tuple(x.reshape(-1)[5::16411].tolist())
        if self.known.get(x.data_ptr(), [None])[0] != key:
            self.known[x.data_ptr()] = key, nn.functional.gelu(x)
        return self.known[x.data_ptr()][1].detach()
